// An editor for YAML. Loaded on demand: it is larger than the rest of the dashboard.
//
// It is in a shadow root, because only there it uses style sheets that the Content Security Policy of the page allows.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  label: string;
  text: string; // the initial text
  onChange: (text: string) => void;
}

export default function Editor({ label, text, onChange }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!box.current) return undefined;
    const root = box.current.shadowRoot ?? box.current.attachShadow({ mode: "open" });
    const state = EditorState.create({ doc: text, extensions: extensionsOf(label, onChange) });
    const view = new EditorView({ parent: root, root, state });
    return () => view.destroy();
  }, [text]);
  return <div class="editor" ref={box} />;
}

// Escape leaves the editor, so that Tab, which indents, does not trap keyboard users.
const leave = { key: "Escape", run: (view: EditorView) => { view.contentDOM.blur(); return true; } };

// The colours of the page, light and dark.
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--link)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--wait)" },
  { tag: tags.comment, color: "var(--quiet)" },
]);
const theme = EditorView.theme({
  "&": { maxHeight: "32rem", color: "var(--text)" },
  ".cm-scroller": { fontFamily: "var(--mono)", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { background: "var(--card)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { background: "var(--bar)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--reserved)" },
});

const extensionsOf = (label: string, onChange: (text: string) => void) => [
  lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(), yaml(), theme,
  syntaxHighlighting(colours),
  keymap.of([leave, indentWithTab, ...defaultKeymap, ...historyKeymap]),
  EditorView.contentAttributes.of({ "aria-label": label }),
  EditorView.updateListener.of((update) => { if (update.docChanged) onChange(update.state.doc.toString()); }),
];
