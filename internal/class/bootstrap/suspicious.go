package bootstrap

import (
	"regexp"
	"slices"
	"strings"
)

// candidate matches text between << and >> that may be meant as a placeholder.
var candidate = regexp.MustCompile(
	`<<[ ]*([A-Za-z][A-Za-z0-9_ -]{0,62}?)[ ]*>>|%3[Cc]%3[Cc]([A-Za-z][A-Za-z0-9_-]{0,62})%3[Ee]%3[Ee]`)

// UnknownPlaceholders returns the sorted parts of the text that look like placeholders but are none.
func UnknownPlaceholders(text []byte) (unknown []string) {
	for _, groups := range candidate.FindAllSubmatch(text, -1) {
		if !placeholder.Match(groups[0]) {
			unknown = append(unknown, string(groups[0]))
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// Suspicious returns the sorted parts of the template that are probably misspelled placeholders. Such a part consists
// of upper-case words with underscores, like a placeholder, or its name is similar to the name of a placeholder. Render
// does not replace these parts.
func Suspicious(template []byte) (suspicious []string) {
	_, err := RewriteTexts(template, func(text []byte) ([]byte, error) {
		for _, found := range UnknownPlaceholders(text) {
			groups := candidate.FindStringSubmatch(found)
			if resemblesPlaceholder(groups[1] + groups[2]) {
				suspicious = append(suspicious, found)
			}
		}
		return text, nil
	})
	if err != nil {
		return nil
	}
	slices.Sort(suspicious)
	return slices.Compact(suspicious)
}

// nameForm matches names in the form of all placeholders: upper case with underscores.
var nameForm = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

func resemblesPlaceholder(name string) bool {
	if nameForm.MatchString(name) {
		return true
	}
	return slices.ContainsFunc(Placeholders(), func(known string) bool {
		return editDistance(letters(name), letters(known)) <= 2
	})
}

func letters(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToUpper(name))
}

// editDistance returns how many letters must be inserted, deleted or replaced to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
