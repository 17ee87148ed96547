package migration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// redacted replaces values of Secrets in texts for users.
	redacted = "[redacted]"
	// minRedacted is the minimum length of a value that the redactor removes. A shorter value can be a part of an
	// ordinary word, so removing it would make messages unreadable.
	minRedacted = 4
	// minBeginning is the minimum length of a truncated value that the redactor removes. Drivers and API servers
	// truncate long values in their messages.
	minBeginning = 8
)

// ownWords are part of many messages of Machinist, such as those with the API groups machinist.dev and kubernetes.io. A
// value that equals one of them, such as the name of a user, stays readable.
var ownWords = []string{"machinist", "kubernetes", "default"}

// redactor replaces values of Secrets in texts for users. Messages of clouds, drivers and API servers can contain such
// values.
type redactor struct{ values []string }

// add registers a value that the redactor removes from texts. The redactor also recognizes the value in quotes, and
// in the encodings of JSON, base64 and URLs. The redactor recognizes the whole value and a truncated value, but no
// other part of the value.
func (r *redactor) add(value []byte) {
	text := strings.TrimSpace(string(value))
	if len(text) < minRedacted || slices.Contains(ownWords, text) {
		return
	}
	quoted := strconv.Quote(text)
	encoded, _ := json.Marshal(text) // A string can always be encoded.
	for _, form := range []string{text, quoted[1 : len(quoted)-1], string(encoded[1 : len(encoded)-1]),
		base64.RawStdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)),
		url.QueryEscape(text), url.PathEscape(text)} {
		if !slices.Contains(r.values, form) {
			r.values = append(r.values, form)
		}
	}
}

func (r *redactor) inText(text string) string {
	if len(r.values) == 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if n := r.matchLength(text[i:]); n > 0 {
			b.WriteString(redacted)
			i += n
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return strings.ToValidUTF8(b.String(), "")
}

// matchLength returns how many bytes at the start of the text must be removed. The redactor removes a whole registered
// value, or a truncated registered value of at least minBeginning bytes.
func (r *redactor) matchLength(text string) (longest int) {
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

// inError returns an error whose message is redacted.
func (r *redactor) inError(err error) error {
	if err == nil {
		return nil
	}
	if text := r.inText(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
