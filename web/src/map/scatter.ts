/** The few things we ask of the drawing library, which comes in a file of its own. */
export interface Scatter {
  get(name: string): unknown;
  set(properties: Record<string, unknown>): void;
  draw(points: { x: ArrayLike<number>; y: ArrayLike<number>; valueA: ArrayLike<number> }, options: Record<string, unknown>): Promise<void>;
  filter(points: ArrayLike<number>): Promise<void>;
  unfilter(): Promise<void>;
  select(points: number[], options?: Record<string, unknown>): void;
  deselect(options?: Record<string, unknown>): void;
  getScreenPosition(point: number): [number, number] | undefined;
  subscribe(event: string, handler: (payload: unknown) => void): unknown;
  destroy(): void;
}

export type Create = (options: Record<string, unknown>) => Scatter;
