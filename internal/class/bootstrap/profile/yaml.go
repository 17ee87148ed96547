package profile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// Secret returns the manifest of a Secret with a template under the key that classes read. The label lets them.
// Without a namespace it goes where it is applied. Both names have to be valid.
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

// writeText writes a string after its key: as a literal block where that is the same, which people can read.
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

// isBlock says whether a text is the same as a literal block: it ends with one line break, its first line is not empty
// or indented, and it has no character that YAML reads as a line break of its own.
func isBlock(text string) bool {
	return isText([]byte(text)) && strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "\n\n") &&
		!strings.ContainsAny(text[:1], " \t\n") && !strings.Contains(text, "\r")
}

// quoted writes a string as JSON does, which YAML reads alike. What is outside of ASCII and of JSON's escapes is left
// as it is, and < and > are too, for placeholders.
func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string, to memory
	return strings.TrimSuffix(out.String(), "\n")
}

func encoded(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
