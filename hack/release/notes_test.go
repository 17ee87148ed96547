package main

import "testing"

const changelog = `# Changes

The format is that of Keep a Changelog.

## 0.3.0, not released yet

- Something.

## 0.2.0-rc.1, 2026-02-01

- A candidate.

## [0.2.0] - 2026-02-03

A sentence that continues
on the next line, with [a
link](docs/install.md).

### Upgrading

- Run the commands in [install](docs/install.md#images), and
  read [the page](https://example.com/page):
  - a part that also
    continues
- See [above](#changes).

| a | b |
|---|---|
| 1 | 2 |

` + "```sh\n## a comment\nhelm upgrade \\\n  machinist\n# [not](a-link)\n```" + `

## 0.1.0, 2026-01-31

## 0.0.1

- No date.
`

func TestNotesAreSectionOfVersion(t *testing.T) {
	want := `A sentence that continues on the next line, with [a link](https://example.com/blob/v0.2.0/docs/install.md).

### Upgrading

- Run the commands in [install](https://example.com/blob/v0.2.0/docs/install.md#images), and read [the page](https://example.com/page):
  - a part that also continues
- See [above](#changes).

| a | b |
|---|---|
| 1 | 2 |

` + "```sh\n## a comment\nhelm upgrade \\\n  machinist\n# [not](a-link)\n```\n"
	got, err := notesOf(changelog, "0.2.0", "https://example.com/blob/v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNotesNeedDateAndText(t *testing.T) {
	for version, want := range map[string]string{
		"0.2.0-rc.1": "",
		"0.3.0":      `has no date for the version 0.3.0: change the heading "## 0.3.0, not released yet"`,
		"0.0.1":      "has no date for the version 0.0.1",
		"0.1.0":      "says nothing about the version 0.1.0",
		"0.2":        "has no section for the version 0.2",
		"1.0.0":      "has no section for the version 1.0.0",
	} {
		_, err := notesOf(changelog, version, "https://example.com")
		expectError(t, version, err, want)
	}
}
