/** Addresses after the hash. They are stable: a link to a card can be sent to a colleague. */

export type Route =
  | { page: "overview" | "units" | "map" | "pictures" | "about" | "audit" | "unknown" }
  | { page: "lens"; name: string }
  | { page: "unit"; id: string; sub: number | null }
  | { page: "picture"; picture: number }
  | { page: "compare"; a: string | null; b: string | null }
  | { page: "live"; picture: string | null };

export interface Address {
  route: Route;
  query: URLSearchParams;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export function parse(hash: string): Address {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  const query = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
  const [page = "", ...rest] = path.split("/").filter((part) => part !== "").map(decoded);
  return { route: routeOf(page, rest), query };
}

function routeOf(page: string, rest: string[]): Route {
  switch (page) {
    case "":
      return { page: "overview" };
    case "units":
    case "map":
    case "pictures":
    case "about":
    case "audit":
      return { page };
    case "lens":
      return rest[0] ? { page, name: rest[0] } : { page: "unknown" };
    case "unit": {
      if (rest.length < 3) return { page: "unknown" };
      const [whole = "", sub] = (rest[rest.length - 1] ?? "").split(".");
      return { page, id: [...rest.slice(0, -1), whole].join("/"), sub: sub === undefined ? null : Number(sub) };
    }
    case "picture": {
      const picture = Number(rest[0]);
      return Number.isInteger(picture) ? { page, picture } : { page: "unknown" };
    }
    case "compare":
      return { page, a: rest[0] ?? null, b: rest[1] ?? null };
    case "live":
      return { page, picture: rest[0] ?? null };
    default:
      return { page: "unknown" };
  }
}

/** `#/a/b?q=x`, every part escaped. Slashes in `id` keep their meaning. */
export function to(page: string, parts: (string | number)[] = [], query: Record<string, string | null> = {}): string {
  const path = [page, ...parts].filter((part) => part !== "").map((part) => encodeURIComponent(part)).join("/");
  const asked = new URLSearchParams(Object.entries(query).filter((pair): pair is [string, string] => !!pair[1])).toString();
  return `#/${path}${asked ? `?${asked}` : ""}`;
}

export function toUnit(id: string): string {
  return to("unit", id.split("/"));
}
