// Package guide runs the commands of documentation pages in end-to-end tests. It runs them as a reader does: in a
// shell, in order, and as they are written.
package guide

import "regexp"

// Blocks returns the fenced code blocks of a language in a page.
func Blocks(page, language string) []string {
	var all []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}
