package bootstrap

import (
	"regexp"
	"slices"
	"strings"
)

// candidate matches text between << and >> that the author may have meant as a placeholder: a name in upper or lower
// case, which may contain underscores, spaces or hyphens.
var candidate = regexp.MustCompile(
	`<<[ ]*([A-Za-z][A-Za-z0-9_ -]{0,62}?)[ ]*>>|%3[Cc]%3[Cc]([A-Za-z][A-Za-z0-9_-]{0,62})%3[Ee]%3[Ee]`)

// Unknown returns, in sorted order, the parts of the text that look like placeholders but are not placeholders.
func Unknown(text []byte) (unknown []string) {
	for _, groups := range candidate.FindAllSubmatch(text, -1) {
		if !placeholder.Match(groups[0]) {
			unknown = append(unknown, string(groups[0]))
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// Suspicious returns, in sorted order, the parts of the template that are probably misspelled placeholders. A part
// is considered misspelled if it consists of upper-case letters with an underscore, as all placeholders do, or if
// it resembles the name of a placeholder. Render leaves these parts in the user data.
func Suspicious(template []byte) (suspicious []string) {
	_, err := rewriteTexts(template, func(text []byte) ([]byte, error) {
		for _, found := range Unknown(text) {
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

// nameForm matches names that have the same form as the names of all placeholders: upper case with underscores.
var nameForm = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

func resemblesPlaceholder(name string) bool {
	if nameForm.MatchString(name) {
		return true
	}
	return slices.ContainsFunc(Placeholders(), func(known string) bool {
		return editDistance(letters(name), letters(known)) <= 2
	})
}

// letters returns a name in upper case and without separators.
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
