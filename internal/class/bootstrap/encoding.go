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

// maxPlain bounds what compressed user data may become. No cloud takes a thousandth of it.
const maxPlain = 32 << 20

// maxNesting bounds how often something encoded may be in something encoded.
const maxNesting = 8

// eachText calls change with each text of user data, and returns the user data with what change returned instead. It
// looks into gzip, gzip in base64, and the parts of MIME multipart. What has no changed text in it stays as it is, byte
// for byte.
func eachText(data []byte, change func(text []byte) ([]byte, error)) ([]byte, error) {
	return decoder{change: change}.each(data)
}

type decoder struct {
	change  func(text []byte) ([]byte, error)
	nesting int
}

func (d decoder) each(data []byte) ([]byte, error) {
	if d.nesting++; d.nesting > maxNesting {
		return nil, fmt.Errorf("user data is encoded more than %d times", maxNesting)
	}
	if isGzip(data) {
		return d.gzipped(data)
	}
	if packed, ok := gzipInBase64(data); ok {
		return d.within(data, packed, d.gzipped, inBase64)
	}
	if parts, ok := multipart(data); ok {
		return d.parts(parts)
	}
	if isUTF16(data) {
		return nil, errors.New("user data is encoded in UTF-16, so its placeholders cannot be replaced: save it as UTF-8")
	}
	return d.change(data)
}

// within changes what encoded has in it, and encodes that again if it is another then.
func (d decoder) within(encoded, plain []byte, each func([]byte) ([]byte, error),
	encode func(plain, like []byte) []byte) ([]byte, error) {
	changed, err := each(plain)
	if err != nil || bytes.Equal(changed, plain) {
		return encoded, err
	}
	return encode(changed, encoded), nil
}

func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b, 8}) }

func (d decoder) gzipped(data []byte) ([]byte, error) {
	plain, err := decompress(data)
	if err != nil {
		return nil, fmt.Errorf("user data begins as gzip and cannot be decompressed: %w", err)
	}
	return d.within(data, plain, d.each, func(plain, _ []byte) []byte { return Compress(plain) })
}

func decompress(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, maxPlain+1))
	if err == nil && len(plain) > maxPlain {
		err = fmt.Errorf("it is larger than %d MiB", maxPlain>>20)
	}
	return plain, err
}

// Compress returns user data in gzip, whose result is always the same for the same data. What is gzip already stays as
// it is.
func Compress(data []byte) []byte {
	if isGzip(data) {
		return data
	}
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return data // The level is a constant.
	}
	_, _ = writer.Write(data) // A buffer takes everything.
	_ = writer.Close()
	return out.Bytes()
}

// gzipInBase64 returns the gzip that a text in base64 holds.
func gzipInBase64(data []byte) (packed []byte, ok bool) {
	text := bytes.TrimSpace(data)
	if !bytes.HasPrefix(text, []byte("H4sI")) {
		return nil, false
	}
	packed, err := base64.StdEncoding.DecodeString(string(text)) // Which skips line ends.
	return packed, err == nil && isGzip(packed)
}

// mimeLine is how long the lines of base64 are in mail.
const mimeLine = 76

// inBase64 encodes data in lines if like has lines, and else in one.
func inBase64(data, like []byte) []byte {
	text := base64.StdEncoding.EncodeToString(data)
	trimmed := bytes.TrimSpace(like)
	end := "\n"
	if bytes.Contains(trimmed, []byte("\r\n")) {
		end = "\r\n"
	}
	var out bytes.Buffer
	if bytes.ContainsRune(trimmed, '\n') {
		for len(text) > mimeLine {
			out.WriteString(text[:mimeLine] + end)
			text = text[mimeLine:]
		}
	}
	out.WriteString(text)
	out.Write(like[len(bytes.TrimRight(like, " \t\r\n")):])
	return out.Bytes()
}

// isUTF16 reports whether the data begins with the byte order mark of UTF-16, or has a placeholder in it without one.
func isUTF16(data []byte) bool {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return true
	}
	if !bytes.Contains(data, []byte{'<', 0, '<'}) {
		return false
	}
	plain := make([]uint16, 0, len(data)/2)
	for i := bytes.Index(data, []byte{'<', 0, '<'}); i+1 < len(data); i += 2 {
		plain = append(plain, uint16(data[i])|uint16(data[i+1])<<8)
	}
	return placeholder.MatchString(string(utf16.Decode(plain)))
}
