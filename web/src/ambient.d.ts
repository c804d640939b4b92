declare module "virtual:panels.css";
declare module "*.css";
