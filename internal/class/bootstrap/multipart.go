package bootstrap

import (
	"bytes"
	"encoding/base64"
	"mime"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// piece is a stretch of a MIME multipart: a part with its header, or what is between parts, which stays as it is.
type piece struct {
	text []byte
	part bool
}

// headerForm is how a MIME message begins, as cloud-init requires it: with a header line.
var headerForm = regexp.MustCompile(`^[A-Za-z][-A-Za-z]*:[ \t]`)

// multipart takes user data apart that is MIME multipart. Together the pieces are the data.
func multipart(data []byte) (pieces []piece, ok bool) {
	if !headerForm.Match(data) {
		return nil, false
	}
	header, _, ok := cutHeader(data)
	if !ok {
		return nil, false
	}
	kind, parameters, err := mime.ParseMediaType(field(header, "Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") || parameters["boundary"] == "" {
		return nil, false
	}
	delimiter := "--" + parameters["boundary"]
	start, inPart := 0, false
	for at := len(header); at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := strings.TrimRight(string(data[at:end]), " \t\r\n")
		if line == delimiter || line == delimiter+"--" {
			pieces = append(pieces, piece{data[start:at], inPart}, piece{data[at:end], false})
			start, inPart = end, line == delimiter
		}
		at = end
	}
	return append(pieces, piece{data[start:], inPart}), true
}

// cutHeader divides a message after the empty line that ends its header.
func cutHeader(data []byte) (header, body []byte, ok bool) {
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		end += at + 1
		if len(bytes.TrimRight(data[at:end], "\r\n")) == 0 {
			return data[:end], data[end:], true
		}
		at = end
	}
	return nil, nil, false
}

// field returns a field of a header, with its continuation lines.
func field(header []byte, name string) string {
	value, found := "", false
	for line := range strings.SplitSeq(strings.ReplaceAll(string(header), "\r\n", "\n"), "\n") {
		if found && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")) {
			value += line
			continue
		}
		if found {
			break
		}
		key, rest, isField := strings.Cut(line, ":")
		if isField && textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(key)) == name {
			value, found = rest, true
		}
	}
	return strings.TrimSpace(value)
}

func (d decoder) parts(pieces []piece) ([]byte, error) {
	out := make([][]byte, 0, len(pieces))
	for _, p := range pieces {
		text := p.text
		if p.part {
			var err error
			if text, err = d.part(p.text); err != nil {
				return nil, err
			}
		}
		out = append(out, text)
	}
	return slices.Concat(out...), nil
}

// part changes the content of a part, which may be a multipart itself.
func (d decoder) part(data []byte) ([]byte, error) {
	if _, nested := multipart(data); nested {
		return d.each(data)
	}
	header, body, ok := cutHeader(data)
	if !ok {
		return d.each(data)
	}
	encoded := strings.EqualFold(field(header, "Content-Transfer-Encoding"), "base64")
	plain, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(body)))
	if encoded && err == nil {
		body, err = d.within(body, plain, d.each, inBase64)
	} else {
		body, err = d.each(body)
	}
	return slices.Concat(header, body), err
}
