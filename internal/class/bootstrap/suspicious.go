package bootstrap

import (
	"regexp"
	"slices"
	"strings"
)

// placeholderForm matches what may be meant as a placeholder, in whatever case and with spaces or hyphens.
var placeholderForm = regexp.MustCompile(
	`<<[ ]*([A-Za-z][A-Za-z0-9_ -]{0,62}?)[ ]*>>|%3[Cc]%3[Cc]([A-Za-z][A-Za-z0-9_-]{0,62})%3[Ee]%3[Ee]`)

// Unknown returns what has the form of a placeholder in the text and is none, sorted.
func Unknown(text []byte) (unknown []string) {
	for _, groups := range placeholderForm.FindAllSubmatch(text, -1) {
		if !placeholder.Match(groups[0]) {
			unknown = append(unknown, string(groups[0]))
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// Suspicious returns what is probably a misspelt placeholder in the template, sorted: upper case with an underscore, as
// all placeholders have, or almost the name of one. It stays in the user data as it is.
func Suspicious(template []byte) (suspicious []string) {
	_, err := eachText(template, func(text []byte) ([]byte, error) {
		for _, found := range Unknown(text) {
			groups := placeholderForm.FindStringSubmatch(found)
			if looksMeant(groups[1] + groups[2]) {
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

// ownForm is the form that all placeholders have.
var ownForm = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

func looksMeant(name string) bool {
	if ownForm.MatchString(name) {
		return true
	}
	return slices.ContainsFunc(Placeholders(), func(known string) bool {
		return distance(letters(name), letters(known)) <= 2
	})
}

// letters returns a name in upper case and without what separates its words.
func letters(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToUpper(name))
}

// distance is how many letters have to be inserted, removed or changed to make b from a.
func distance(a, b string) int {
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
