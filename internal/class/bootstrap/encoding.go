package bootstrap

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
)

// maxDecompressed is the maximum size of decompressed user data in bytes. Every cloud has a much lower limit.
const maxDecompressed = 32 << 20

const maxNesting = 8

// RewriteTexts replaces each text in the user data by the result of a function. To find the texts, it decodes gzip,
// gzip in base64, and MIME multipart. If the function changes no text of an encoded part, the encoded part stays the
// same, byte for byte.
func RewriteTexts(data []byte, change func(text []byte) ([]byte, error)) ([]byte, error) {
	return decoder{change: change}.rewrite(data)
}

type decoder struct {
	change  func(text []byte) ([]byte, error)
	nesting int
}

func (d decoder) rewrite(data []byte) ([]byte, error) {
	if d.nesting++; d.nesting > maxNesting {
		return nil, fmt.Errorf("user data is encoded more than %d times", maxNesting)
	}
	if isGzip(data) {
		return d.rewriteGzip(data)
	}
	if packed, ok := gzipInBase64(data); ok {
		return d.rewriteEncoded(data, packed, d.rewriteGzip, inBase64)
	}
	if parts, ok := splitMultipart(data); ok {
		return d.rewriteParts(parts)
	}
	if isUTF16(data) {
		return nil, errors.New("user data is encoded in UTF-16, so its placeholders cannot be replaced: save it as UTF-8")
	}
	return d.change(data)
}

// rewriteEncoded rewrites decoded data and encodes the result. If nothing changes, it returns the original encoded
// data.
func (d decoder) rewriteEncoded(encoded, decoded []byte, rewrite func([]byte) ([]byte, error),
	encode func(decoded, example []byte) []byte) ([]byte, error) {
	changed, err := rewrite(decoded)
	if err != nil || bytes.Equal(changed, decoded) {
		return encoded, err
	}
	return encode(changed, encoded), nil
}

func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b, 8}) }

func (d decoder) rewriteGzip(data []byte) ([]byte, error) {
	decoded, err := decompress(data)
	if err != nil {
		return nil, fmt.Errorf("user data starts like gzip but cannot be decompressed: %w", err)
	}
	return d.rewriteEncoded(data, decoded, d.rewrite, func(decoded, _ []byte) []byte { return Compress(decoded) })
}

func decompress(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	decoded, err := io.ReadAll(io.LimitReader(reader, maxDecompressed+1))
	if err == nil && len(decoded) > maxDecompressed {
		err = fmt.Errorf("the result is larger than %d MiB", maxDecompressed>>20)
	}
	return decoded, err
}

// Compress returns user data in gzip, always with the same result. Data in gzip is returned unchanged.
func Compress(data []byte) []byte {
	if isGzip(data) {
		return data
	}
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return data // This cannot happen, because the level is valid.
	}
	_, _ = writer.Write(data) // A bytes.Buffer returns no errors.
	_ = writer.Close()
	return out.Bytes()
}

func gzipInBase64(data []byte) (packed []byte, ok bool) {
	text := bytes.TrimSpace(data)
	if !bytes.HasPrefix(text, []byte("H4sI")) {
		return nil, false
	}
	packed, err := base64.StdEncoding.DecodeString(string(text)) // DecodeString skips line ends.
	return packed, err == nil && isGzip(packed)
}

const mimeLineLength = 76

// inBase64 encodes data in base64. Line breaks and white space at the end are the same as in the example.
func inBase64(data, example []byte) []byte {
	text := base64.StdEncoding.EncodeToString(data)
	trimmed := bytes.TrimSpace(example)
	end := "\n"
	if bytes.Contains(trimmed, []byte("\r\n")) {
		end = "\r\n"
	}
	var out bytes.Buffer
	if bytes.ContainsRune(trimmed, '\n') {
		for len(text) > mimeLineLength {
			out.WriteString(text[:mimeLineLength] + end)
			text = text[mimeLineLength:]
		}
	}
	out.WriteString(text)
	out.Write(example[len(bytes.TrimRight(example, " \t\r\n")):])
	return out.Bytes()
}

// isUTF16 reports whether the data has a UTF-16 byte order mark or contains a placeholder in UTF-16.
func isUTF16(data []byte) bool {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return true
	}
	if !bytes.Contains(data, []byte{'<', 0, '<'}) {
		return false
	}
	units := make([]uint16, 0, len(data)/2)
	for i := bytes.Index(data, []byte{'<', 0, '<'}); i+1 < len(data); i += 2 {
		units = append(units, uint16(data[i])|uint16(data[i+1])<<8)
	}
	return placeholder.MatchString(string(utf16.Decode(units)))
}
