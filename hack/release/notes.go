package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// notesOf returns the section of a version in the changelog. Relative links become absolute.
func notesOf(changelog, version, base string) (string, error) {
	var section []string
	found, code := false, false
	for line := range strings.Lines(changelog) {
		line = strings.TrimRight(line, "\r\n")
		if isFence(line) {
			code = !code
		}
		if heading, ok := strings.CutPrefix(line, "## "); ok && !code {
			if found {
				break
			}
			if found = isHeadingOf(heading, version); found && !hasDate(heading) {
				return "", fmt.Errorf("CHANGELOG.md has no date for the version %s: change the heading %q to a heading such as %q",
					version, line, "## "+version+", 2026-01-31")
			}
			continue
		}
		if found {
			section = append(section, line)
		}
	}
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section for the version %s", version)
	}
	notes := strings.TrimSpace(strings.Join(absolute(unwrap(section), base), "\n"))
	if notes == "" {
		return "", fmt.Errorf("CHANGELOG.md says nothing about the version %s", version)
	}
	return notes + "\n", nil
}

// isHeadingOf reports whether a heading begins with a version, with or without brackets.
func isHeadingOf(heading, version string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(heading, "["), version)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], ", ]"))
}

func hasDate(heading string) bool {
	words := strings.Fields(heading)
	_, err := time.Parse(time.DateOnly, words[len(words)-1])
	return err == nil
}

func isFence(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "```") }

// block matches the first line of a list item, a heading, a quotation or a row of a table.
var block = regexp.MustCompile(`^\s*([-*+] |\d+\. |#+ |>|\|)`)

// unwrap joins the lines of each paragraph and of each list item, because GitHub shows the line breaks of release notes.
func unwrap(lines []string) []string {
	var out []string
	code, open := false, false // open reports whether the next line can continue the last one.
	for _, line := range lines {
		fence := isFence(line)
		if fence {
			code = !code
		}
		switch trimmed := strings.TrimSpace(line); {
		case code || fence || trimmed == "":
			out, open = append(out, line), false
		case open && !block.MatchString(line):
			out[len(out)-1] += " " + trimmed
		default:
			out, open = append(out, line), !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "|")
		}
	}
	return out
}

// target matches the destination of a Markdown link, such as "](path)".
var target = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// absolute prepends a URL to the relative targets of links outside of code.
func absolute(lines []string, base string) []string {
	out := make([]string, len(lines))
	code := false
	for i, line := range lines {
		if isFence(line) {
			code = !code
		}
		if out[i] = line; code {
			continue
		}
		out[i] = target.ReplaceAllStringFunc(line, func(link string) string {
			if to := target.FindStringSubmatch(link)[1]; !strings.Contains(to, ":") && !strings.HasPrefix(to, "#") {
				return "](" + base + "/" + to + ")"
			}
			return link
		})
	}
	return out
}
