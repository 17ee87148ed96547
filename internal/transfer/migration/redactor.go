package migration

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

const (
	// redacted replaces the value of a Secret in what users read.
	redacted = "[redacted]"
	// minRedacted is the minimum length of a value that is replaced in texts. Shorter values are parts of ordinary words.
	minRedacted = 4
	// minBeginning is how long the beginning of a value must be that is replaced without the rest of the value. A driver or
	// an API server shortens long values in its messages.
	minBeginning = 8
)

// redactor replaces values of Secrets in texts that users read: findings, conditions, troubles and errors. The messages of
// clouds, drivers and API servers can contain such values.
type redactor struct{ values []string }

// add makes the redactor replace a value, also as it is written in quotes and in JSON.
func (r *redactor) add(value []byte) {
	text := strings.TrimSpace(string(value))
	quoted := strconv.Quote(text)
	encoded, _ := json.Marshal(text) // A string can always be encoded.
	for _, form := range []string{text, quoted[1 : len(quoted)-1], string(encoded[1 : len(encoded)-1])} {
		if len(form) >= minRedacted && !slices.Contains(r.values, form) {
			r.values = append(r.values, form)
		}
	}
}

// inText returns a text without the values.
func (r *redactor) inText(text string) string {
	if len(r.values) == 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if n := r.match(text[i:]); n > 0 {
			b.WriteString(redacted)
			i += n
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return strings.ToValidUTF8(b.String(), "")
}

// match returns the length of the value, or of the long beginning of a value, with which a text begins, or 0.
func (r *redactor) match(text string) (longest int) {
	for _, value := range r.values {
		n := 0
		for n < len(text) && n < len(value) && text[n] == value[n] {
			n++
		}
		if n == len(value) || n >= minBeginning {
			longest = max(longest, n)
		}
	}
	return longest
}

// inError returns an error without the values.
func (r *redactor) inError(err error) error {
	if err == nil {
		return nil
	}
	if text := r.inText(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
