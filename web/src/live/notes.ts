/** Names and comments, kept by the server in the run folder. */
import { deleteNote, postNote, readNotes, undo } from "../api";
import { say, takeNotes } from "../state";

export async function refreshNotes(): Promise<void> {
  takeNotes(await readNotes());
}

export async function writeNote(id: string, name: string, comment: string): Promise<string> {
  const { undo: token } = await postNote({ id, name: name || null, comment: comment || null });
  await refreshNotes();
  return token;
}

export async function dropNote(id: string): Promise<string> {
  const { undo: token } = await deleteNote(id);
  await refreshNotes();
  return token;
}

export async function undoNote(token: string): Promise<void> {
  try {
    await undo(token);
    await refreshNotes();
    say("Undone");
  } catch (error) {
    say((error as Error).message, { tone: "bad" });
  }
}
