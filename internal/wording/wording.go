// Package wording builds pieces of the sentences that people read in messages.
package wording

import "fmt"

// Count returns a number with its noun: "1 machine", "3 machines". The plural of the noun must be made with an s.
func Count[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
