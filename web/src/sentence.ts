/** "no such picture" -> "No such picture." */
export function sentence(text: string): string {
  const ended = /[.!?…]$/.test(text) ? text : `${text}.`;
  return `${(ended[0] ?? "").toUpperCase()}${ended.slice(1)}`;
}
