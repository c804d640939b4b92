import { describe, expect, it } from "vitest";

import { bytesOf, floatsOf, shortsOf, wholesOf } from "../src/bytes";
import { smooth } from "../src/heat";
import { centred, cloudFrom, pathOf, picturesOf, seeded, ways, type Cloud } from "../src/map/cloud";
import { parse, to, toUnit } from "../src/route";
import { find, readAsked } from "../src/search";
import { sentence } from "../src/sentence";
import { scriptOf } from "../src/source";
import type { Units } from "../src/types";

const base64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));

describe("columns", () => {
  it("come back as they were written, little-endian", () => {
    const floats = new Float32Array([1.5, -2, 1e-20, 3e8]);
    expect(floatsOf(bytesOf(base64(new Uint8Array(floats.buffer))))).toEqual(floats);
    expect([...shortsOf(bytesOf(base64(new Uint8Array([1, 2, 255, 255]))))]).toEqual([513, 65535]);
  });
  it("hold numbers of pictures in two bytes, or in four where there are many", () => {
    expect([...wholesOf(new Uint8Array([1, 2, 255, 255]), 2)]).toEqual([513, 65535]);
    const many = new Uint8Array(new Uint32Array([9, 70_000, 3]).buffer);
    expect([...wholesOf(many.subarray(4), 2)]).toEqual([70_000, 3]);
  });
});

describe("refusals", () => {
  it("are told as sentences", () => {
    expect(["no such picture", "accepted: 0 to 31", "Is it running?"].map(sentence)).toEqual(["No such picture.", "Accepted: 0 to 31.", "Is it running?"]);
  });
});

describe("heat", () => {
  it("keeps its range, its peak and its place", () => {
    const grid = new Uint8Array(16);
    grid[5] = 200;
    const fine = smooth(grid, 4, 4);
    expect(Math.max(...fine)).toBeCloseTo(200 / 255);
    expect(Math.min(...fine)).toBeGreaterThanOrEqual(0);
    const at = fine.indexOf(Math.max(...fine));
    expect([Math.floor(at / 32 / 8), Math.floor((at % 32) / 8)]).toEqual([1, 1]);
  });
  it("of nothing is nothing", () => expect(Math.max(...smooth(new Uint8Array(9), 3, 3))).toBe(0));
});

describe("addresses", () => {
  it("of units survive any name", () => {
    for (const model of ["plain", "a/b", "50% ü?#&", "x y"]) {
      const { route } = parse(toUnit(`${model}/blocks.7.mlp.out/17.2`));
      expect(route).toEqual({ page: "unit", id: `${model}/blocks.7.mlp.out/17`, sub: 2 });
    }
  });
  it("that are broken lead to a page that says so", () => {
    for (const hash of ["#/unit/a", "#/picture/x", "#/lens", "#/nowhere/at/all"]) expect(parse(hash).route.page).toBe("unknown");
    expect(parse("#/unit/%E0%A4%A/s/1").route.page).toBe("unit");
    expect(parse("").route.page).toBe("overview");
  });
  it("carry a query", () => expect(readAsked(parse(to("units", [], { q: "red & blue", sort: "score" })).query)).toMatchObject({ q: "red & blue", sort: "score" }));
  it("of data files are escaped part by part", () => expect(scriptOf("unit/50% #?/s/1")).toBe("data/unit/50%25%20%23%3F/s/1.js"));
});

describe("search", () => {
  const units: Units = {
    id: ["m/s/0", "m/s/1", "n/s/2"],
    model: [0, 0, 1],
    site: ["s", "s", "s"],
    block: [1, 2, 2],
    unit: [0, 1, 2],
    label: ["Red circle", null, "blue"],
    score: [0.2, null, 0.9],
    ms: [0.5, 0.9, null],
    control: [0.1, 0.2, null],
    subunits: [1, 3, 2],
    cluster: [0, 4, 0],
    dead: [0, 0, 1],
    top: [0, 0, 0],
    heat: [null, null, null],
    sublabels: [null, ["teal", null], null],
  };
  const ask = (text: string) => find(units, ["m", "n"], new Map([["n/s/2", { id: "n/s/2", name: "my own", comment: null }]]), readAsked(new URLSearchParams(text)));
  it("finds all words in labels, sub-units, ids and names given by hand", () => {
    expect(ask("q=circle+RED")).toEqual([0]);
    expect(ask("q=teal")).toEqual([1]);
    expect(ask("q=own")).toEqual([2]);
    expect(ask("q=nothing")).toEqual([]);
  });
  it("filters and orders, what is unknown last", () => {
    expect(ask("")).toEqual([1, 0, 2]);
    expect(ask("only=alive,labelled")).toEqual([0]);
    expect(ask("model=n")).toEqual([2]);
    expect(ask("block=2&sort=order")).toEqual([1, 2]);
  });
});

const cloud = (): Cloud => ({
  count: 4,
  x: new Float32Array([0, 2, 4, 1]),
  y: new Float32Array([0, 0, 2, 5]),
  colour: new Uint8Array(12),
  model: new Uint8Array([0, 0, 0, 1]),
  layer: new Uint8Array([1, 0, 0, 0]),
  picture: new Uint16Array([7, 7, 8, 7]),
  token: new Uint16Array([3, 3, 3, 3]),
  concept: new Uint8Array([0, 0, 255, 0]),
  layers: ["a", "b"],
  concepts: [{ name: "one" }],
  label: null,
  labels: [],
});

describe("the space", () => {
  it("gives a patch's way over the layers of its own model", () => expect(pathOf(cloud(), 0)).toEqual([1, 0]));
  it("gives mean ways of groups", () => expect(ways(cloud(), cloud().concept, 1)).toEqual([{ model: 0, group: 0, x: [2, 0], y: [0, 0] }]));
  it("lists a lasso's pictures by their patches", () => expect(picturesOf(cloud(), [0, 1, 2]).map((p) => [p.picture, p.count])).toEqual([[7, 2], [8, 1]]));
  it("lies between -1 and 1 on one scale", () => {
    const { x, y } = cloud();
    centred(x, y);
    expect(Math.max(...x.map(Math.abs), ...y.map(Math.abs))).toBeLessThanOrEqual(1);
    expect((x[1] ?? 0) - (x[0] ?? 0)).toBeCloseTo(((y[2] ?? 0) - (y[0] ?? 0)) / 1);
  });
  it("lays patches at one place around it, the first in the middle", () => {
    const [x, y] = [new Float32Array([0.5, 0.5, 0.5, -1]), new Float32Array(4)];
    seeded(x, y);
    expect(new Set(x).size).toBe(4);
    expect([x[0], x[3]]).toEqual([0.5, -1]);
    expect(Math.max(...y.map(Math.abs))).toBeLessThan(0.01);
  });
  it("reads the explorer's bytes", () => {
    const columns: [string, ArrayLike<number> & ArrayBufferView][] = [["x", new Float32Array([0, 1])], ["y", new Float32Array([2, 3])], ["picture", new Uint16Array([500, 2])]];
    let offset = 0;
    const arrays = columns.map(([name, data]) => ({ name, dtype: "", offset: (offset += data.byteLength) - data.byteLength, bytes: data.byteLength }));
    const head = new TextEncoder().encode(JSON.stringify({ count: 2, layers: [], concepts: [], arrays }));
    const all = new Uint8Array(4 + head.length + offset);
    new DataView(all.buffer).setUint32(0, head.length, true);
    all.set(head, 4);
    columns.forEach(([, data], i) => all.set(new Uint8Array(data.buffer), 4 + head.length + (arrays[i]?.offset ?? 0)));
    expect([...cloudFrom(all).picture]).toEqual([500, 2]);
  });
});
