/** The part that draws points with WebGL. A file of its own, loaded when the map is opened. */
import createScatterplot from "regl-scatterplot";

window.vitreous.put("app/map", createScatterplot);
