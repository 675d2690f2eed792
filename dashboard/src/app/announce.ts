// Announces changes to screen readers, in the live region of the page.

export function announce(text: string): void {
  const paragraph = document.createElement("p");
  paragraph.append(text);
  document.getElementById("announce")?.replaceChildren(paragraph);
}
