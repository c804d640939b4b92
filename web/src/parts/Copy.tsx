import { say } from "../state";

/** The clipboard is closed to some pages from the file system: a hidden field does the same there. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "away";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(`${what} copied`);
}

export function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Code({ code, title = "Python" }: { code: string; title?: string }) {
  return (
    <div class="code">
      <div class="code-head">
        <span>{title}</span>
        <button class="button small" onClick={() => copy(code, "Python")}>
          Copy Python
        </button>
      </div>
      <pre>
        <code>{code}</code>
      </pre>
    </div>
  );
}
