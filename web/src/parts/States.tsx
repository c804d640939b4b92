import type { ComponentChildren } from "preact";

import { Absent, type Loaded } from "../source";
import { index } from "../state";

export function Loading({ what }: { what: string }) {
  return (
    <div class="state" role="status">
      <span class="spinner" aria-hidden="true" />
      <p>Opening {what} …</p>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function NoPicture({ picture, count }: { picture: number; count: number }) {
  return (
    <Empty title={`There is no picture ${picture}`}>
      <p>
        They go from 0 to {count - 1}. <a href="#/pictures">See them all</a>
      </p>
    </Empty>
  );
}

export function Failed({ error, what, again }: { error: Error; what: string; again?: () => void }) {
  const short = index.value?.single && error instanceof Absent;
  return (
    <div class="state" role="alert">
      <h2>{short ? `The short version does not hold ${what}` : `${what[0]?.toUpperCase()}${what.slice(1)} could not be opened`}</h2>
      <p>
        {short ? (
          <>Ask for the whole report, or write it with <code>vitreous report RUN --out FOLDER</code>.</>
        ) : error instanceof Absent ? (
          <>
            <code>data/{error.key}.js</code> is missing or damaged. If the folder was copied, copy all of it; if not, write it again with{" "}
            <code>vitreous report RUN --out FOLDER</code>.
          </>
        ) : (
          error.message
        )}
      </p>
      {again && (
        <button class="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Draws what has been loaded, or says where it stands. */
export function When<T>({ loaded, what, children }: { loaded: Loaded<T>; what: string; children: (value: T) => ComponentChildren }) {
  if (loaded.state === "loading") return <Loading what={what} />;
  if (loaded.state === "failed") return <Failed error={loaded.error} what={what} />;
  return <>{children(loaded.value)}</>;
}
