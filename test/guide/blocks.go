// Package guide runs the commands of documentation pages in end-to-end tests, in order and as they are written.
package guide

import "regexp"

// Blocks returns the fenced code blocks in a page that are marked with the given language.
func Blocks(page, language string) []string {
	var all []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}
