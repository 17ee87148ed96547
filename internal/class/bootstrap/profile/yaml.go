package profile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// Secret returns the manifest of a Secret with a template, and with the key and label that classes need. Without a
// namespace, users choose it when they apply the manifest. The name and the namespace must be valid.
func Secret(name, namespace string, template []byte) []byte {
	var out bytes.Buffer
	out.WriteString("apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + quoteYAML(name) + "\n")
	if namespace != "" {
		out.WriteString("  namespace: " + quoteYAML(namespace) + "\n")
	}
	fmt.Fprintf(&out, "  labels:\n    %s: %s\nstringData:\n  userData: ", v1beta1.LabelSecretUse, v1beta1.SecretUseUserData)
	writeText(&out, string(template), "    ")
	return out.Bytes()
}

// writeText writes a key and its string value, as a readable YAML literal block if possible.
func writeText(out *bytes.Buffer, text, indent string) {
	if !isBlock(text) {
		out.WriteString(quoteYAML(text) + "\n")
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

// isBlock reports whether a YAML literal block can represent the text exactly. The text must end with one line break.
// The first line of the text must be neither empty nor indented. Other characters that YAML reads as line breaks are
// not allowed.
func isBlock(text string) bool {
	return isText([]byte(text)) && strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\n\n") &&
		!strings.ContainsAny(text[:1], " \t\n") && !strings.Contains(text, "\r")
}

// quoteYAML returns a string in JSON syntax, which is valid YAML. Non-ASCII characters, and < and > of placeholders,
// are not escaped.
func quoteYAML(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // Encoding a string to memory cannot fail.
	return strings.TrimSuffix(out.String(), "\n")
}

func toBase64(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
