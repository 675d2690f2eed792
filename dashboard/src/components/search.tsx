// The search field and the pickers of a list.

interface SearchProps {
  value: string;
  placeholder: string;
  onInput: (value: string) => void;
}

export const Search = ({ value, placeholder, onInput }: SearchProps) => (
  <label><span>Search</span>
    <input type="search" name="q" data-filter value={value} autocomplete="off" placeholder={`${placeholder} …  ( / )`}
      onInput={(event) => onInput(event.currentTarget.value)} />
  </label>
);

interface PickerProps {
  name: string;
  label: string;
  value: string;
  options: string[];
  onChange: (value: string) => void;
}

export const Picker = ({ name, label, value, options, onChange }: PickerProps) => (
  <label><span>{label}</span>
    <select name={name} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      <option value="">all</option>
      {options.map((option) => <option value={option} key={option}>{option}</option>)}
    </select>
  </label>
);

/** The words of a search text: each must occur. */
export const wordsOf = (text: string): string[] => text.toLowerCase().split(/\s+/).filter(Boolean);
