package host

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxFileBytes limits the unpacked size of one file in the user data.
const maxFileBytes = 1 << 20

// files contains the files that user data writes, by path.
type files map[string][]byte

// parseUserData applies write_files of a cloud-config. Like cloud-init, it skips invalid entries. It returns a message
// for each invalid entry.
func parseUserData(data []byte) (files, []string, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, fmt.Errorf("there is no user data")
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if strings.TrimRight(string(first), " \t\r") != "#cloud-config" {
		return nil, nil, fmt.Errorf("user data does not begin with the line #cloud-config")
	}
	var config struct {
		WriteFiles []json.RawMessage `json:"write_files"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, nil, fmt.Errorf("user data is not a cloud-config: %w", err)
	}
	all, complaints := files{}, []string(nil)
	for i, raw := range config.WriteFiles {
		if err := all.write(raw); err != nil {
			complaints = append(complaints, fmt.Sprintf("write_files[%d]: %v", i, err))
		}
	}
	return all, complaints, nil
}

func (f files) write(raw json.RawMessage) error {
	var entry struct {
		Path     string `json:"path"`
		Content  string `json:"content"`
		Encoding string `json:"encoding"`
		Append   bool   `json:"append"`
	}
	if err := json.Unmarshal(raw, &entry); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if !path.IsAbs(entry.Path) {
		return fmt.Errorf("path %q must be absolute", entry.Path)
	}
	content, err := unpack(entry.Content, entry.Encoding)
	if err != nil {
		return fmt.Errorf("content of %s: %w", entry.Path, err)
	}
	name := path.Clean(entry.Path)
	if entry.Append {
		content = slices.Concat(f[name], content)
	}
	if len(content) > maxFileBytes {
		return fmt.Errorf("%s is longer than %d bytes", name, maxFileBytes)
	}
	f[name] = content
	return nil
}

func unpack(content, encoding string) ([]byte, error) {
	data := []byte(content)
	switch encoding {
	case "", "text/plain":
		return data, nil
	case "b64", "base64":
		return decodeBase64(content)
	case "gz", "gzip":
	case "gz+base64", "gzip+base64", "gz+b64", "gzip+b64":
		var err error
		if data, err = decodeBase64(content); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the encoding %q is unknown", encoding)
	}
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the content is not gzip: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(reader, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the content is not gzip: %w", err)
	}
	if len(out) > maxFileBytes {
		return nil, fmt.Errorf("the unpacked content has more than %d bytes", maxFileBytes)
	}
	return out, nil
}

func decodeBase64(content string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
	if err != nil {
		return nil, fmt.Errorf("the content is not base64: %w", err)
	}
	return data, nil
}

// environment parses KEY=value lines as init systems do: it removes quotes around whole values and skips # comments.
func environment(data []byte) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		all[strings.TrimSpace(strings.TrimPrefix(key, "export "))] = value
	}
	return all
}

func (f files) names() []string { return slices.Sorted(maps.Keys(f)) }
