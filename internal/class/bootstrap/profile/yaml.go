package profile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// Secret returns the manifest of a Secret that contains a template. The Secret has the key and the label that classes
// need to read the template. If namespace is empty, users choose the namespace when they apply the manifest. Both names
// must be valid.
func Secret(name, namespace string, template []byte) []byte {
	var out bytes.Buffer
	out.WriteString("apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + quoted(name) + "\n")
	if namespace != "" {
		out.WriteString("  namespace: " + quoted(namespace) + "\n")
	}
	fmt.Fprintf(&out, "  labels:\n    %s: %s\nstringData:\n  userData: ", v1beta1.LabelSecretUse, v1beta1.SecretUseUserData)
	writeText(&out, string(template), "    ")
	return out.Bytes()
}

// writeText writes a key and its value, which is a string. If a YAML literal block can represent the string
// exactly, writeText writes such a block, because it is easy to read.
func writeText(out *bytes.Buffer, text, indent string) {
	if !isBlock(text) {
		out.WriteString(quoted(text) + "\n")
		return
	}
	out.WriteString("|\n")
	for line := range strings.Lines(text) {
		if line != "\n" {
			out.WriteString(indent)
		}
		out.WriteString(line)
	}
}

// isBlock reports whether a YAML literal block can represent the text exactly. The text must end with exactly one line
// break. Its first line must not be empty or indented. It must not contain other characters that YAML reads as line
// breaks.
func isBlock(text string) bool {
	return isText([]byte(text)) && strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\n\n") &&
		!strings.ContainsAny(text[:1], " \t\n") && !strings.Contains(text, "\r")
}

// quoted returns a string in JSON syntax, which is also valid YAML. It does not escape non-ASCII characters, nor < and
// >, which are part of placeholders.
func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // Encoding a string to memory cannot fail.
	return strings.TrimSuffix(out.String(), "\n")
}

func toBase64(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
