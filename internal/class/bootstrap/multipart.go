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

// piece is a part of MIME multipart data with its header, or the text between two parts, which never changes.
type piece struct {
	text   []byte
	isPart bool
}

// headerForm matches a header line, with which a MIME message for cloud-init must start.
var headerForm = regexp.MustCompile(`^[A-Za-z][-A-Za-z]*:[ \t]`)

// splitMultipart splits MIME multipart user data into pieces. The pieces in their order are the complete data. ok is
// false if the data is not MIME multipart.
func splitMultipart(data []byte) (pieces []piece, ok bool) {
	if !headerForm.Match(data) {
		return nil, false
	}
	header, _, ok := cutHeader(data)
	if !ok {
		return nil, false
	}
	kind, parameters, err := mime.ParseMediaType(headerField(header, "Content-Type"))
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

// cutHeader splits a message after the empty line that ends its header.
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

func headerField(header []byte, name string) string {
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

func (d decoder) rewriteParts(pieces []piece) ([]byte, error) {
	out := make([][]byte, 0, len(pieces))
	for _, p := range pieces {
		text := p.text
		if p.isPart {
			var err error
			if text, err = d.rewritePart(p.text); err != nil {
				return nil, err
			}
		}
		out = append(out, text)
	}
	return slices.Concat(out...), nil
}

func (d decoder) rewritePart(data []byte) ([]byte, error) {
	if _, nested := splitMultipart(data); nested {
		return d.rewrite(data)
	}
	header, body, ok := cutHeader(data)
	if !ok {
		return d.rewrite(data)
	}
	encoded := strings.EqualFold(headerField(header, "Content-Transfer-Encoding"), "base64")
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(body)))
	if encoded && err == nil {
		body, err = d.rewriteEncoded(body, decoded, d.rewrite, inBase64)
	} else {
		body, err = d.rewrite(body)
	}
	return slices.Concat(header, body), err
}
