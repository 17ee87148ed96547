package bootstrap

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"testing"
)

const secretTemplate = "#cloud-config\nhostname: <<MACHINE_NAME>>\ntoken: <<BOOTSTRAP_TOKEN>>\n"

func rendered(text string) string {
	return strings.NewReplacer("<<MACHINE_NAME>>", "pool-1", "<<BOOTSTRAP_TOKEN>>", "abcdef.0123").Replace(text)
}

func gunzip(t *testing.T, data []byte) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

func mimeLines(data []byte) string {
	text, out := base64.StdEncoding.EncodeToString(data), ""
	for len(text) > mimeLineLength {
		out, text = out+text[:mimeLineLength]+"\n", text[mimeLineLength:]
	}
	return out + text + "\n"
}

// message returns MIME multipart data as cloud-init's make-mime writes it.
func message(parts ...string) string {
	return "Content-Type: multipart/mixed; boundary=\"===1==\"\nMIME-Version: 1.0\n\n--===1==\n" +
		strings.Join(parts, "\n--===1==\n") + "\n--===1==--\n"
}

// Rules: user-data-one-pass, encoded-user-data-is-rendered.
func TestRenderCompressedAndEncodedUserData(t *testing.T) {
	packed := Compress([]byte(secretTemplate))
	long := strings.Repeat("# a line that gzip cannot make much shorter: 4f8a1c\n", 20) + secretTemplate
	part := func(text string) string { return "Content-Type: text/cloud-config\n\n" + text }
	inBase64 := func(data []byte) string {
		return "Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n" + mimeLines(data)
	}
	for name, tc := range map[string]struct {
		template string
		decode   func(out []byte) string
		want     string
	}{
		"gzip": {string(packed), func(out []byte) string { return gunzip(t, out) }, rendered(secretTemplate)},
		"gzip in base64": {base64.StdEncoding.EncodeToString(packed) + "\n", func(out []byte) string {
			plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(out)))
			if err != nil || !bytes.HasSuffix(out, []byte("\n")) || bytes.Count(out, []byte("\n")) != 1 {
				t.Errorf("%v: %q", err, out)
			}
			return gunzip(t, plain)
		}, rendered(secretTemplate)},
		"multipart of texts": {message(part(secretTemplate), part("#!/bin/sh\ncat <<EOF>>/x\nEOF\n")),
			func(out []byte) string { return string(out) },
			message(part(rendered(secretTemplate)), part("#!/bin/sh\ncat <<EOF>>/x\nEOF\n"))},
		"multipart with base64": {message(part("#a\n"), inBase64([]byte(long))),
			func(out []byte) string { return string(out) }, message(part("#a\n"), inBase64([]byte(rendered(long))))},
		"multipart with gzip in base64": {message(inBase64(packed)), func(out []byte) string { return string(out) },
			message(inBase64(Compress([]byte(rendered(secretTemplate)))))},
		"multipart with CRLF line ends": {strings.ReplaceAll(message(part(secretTemplate)), "\n", "\r\n"),
			func(out []byte) string { return string(out) },
			strings.ReplaceAll(message(part(rendered(secretTemplate))), "\n", "\r\n")},
		"multipart in gzip": {string(Compress([]byte(message(part(secretTemplate))))),
			func(out []byte) string { return gunzip(t, out) }, message(part(rendered(secretTemplate)))},
		"multipart in multipart": {message(strings.ReplaceAll(message(part(secretTemplate)), "===1==", "===2==")),
			func(out []byte) string { return string(out) },
			message(strings.ReplaceAll(message(part(rendered(secretTemplate))), "===1==", "===2=="))},
	} {
		t.Run(name, func(t *testing.T) {
			values := Values{MachineName: "pool-1", BootstrapToken: "abcdef.0123"}
			if !NeedsToken([]byte(tc.template)) {
				t.Error("NeedsToken does not find the placeholder of the bootstrap token")
			}
			out, err := Render([]byte(tc.template), values)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.decode(out); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			again, err := Render([]byte(tc.template), values)
			if err != nil || !bytes.Equal(out, again) {
				t.Error("rendering the same template with the same values again gives different bytes")
			}
		})
	}
}

// Rule: encoded-user-data-is-rendered.
func TestRenderKeepsUserDataWithoutPlaceholders(t *testing.T) {
	var other bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&other, gzip.NoCompression)
	writer.Name = "user-data"
	_, _ = writer.Write([]byte("#cloud-config\n"))
	_ = writer.Close()
	for name, data := range map[string]string{
		"gzip":                     other.String(),
		"base64":                   mimeLines(other.Bytes()),
		"not base64":               "H4sI is the start of gzip in base64",
		"multipart":                message("Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" + mimeLines([]byte("a"))),
		"multipart, not base64":    message("Content-Transfer-Encoding: base64\n\nnot <base64>"),
		"multipart without an end": strings.TrimSuffix(message("\n#a"), "--\n"),
		"a field in YAML":          "content-type: multipart/mixed\n\n- a",
		"binary":                   "\x00\x01<\x00<\x00",
	} {
		if out, err := Render([]byte(data), Values{}); err != nil || string(out) != data {
			t.Errorf("%s: error %v, %q became %q", name, err, data, out)
		}
	}
}

// Rule: unreadable-user-data-is-refused.
func TestUnreadableUserDataIsRefused(t *testing.T) {
	utf16 := func(bigEndian bool) (out string) {
		for _, c := range secretTemplate {
			if bigEndian {
				out += "\x00" + string(c)
			} else {
				out += string(c) + "\x00"
			}
		}
		return out
	}
	nested := []byte("<<MACHINE_NAME>>")
	for range maxNesting {
		var out bytes.Buffer
		writer := gzip.NewWriter(&out)
		_, _ = writer.Write(nested)
		_ = writer.Close()
		nested = out.Bytes()
	}
	for name, tc := range map[string]struct{ data, want string }{
		"damaged gzip":                     {string(Compress([]byte(secretTemplate))[:40]), "starts like gzip but cannot be decompressed"},
		"too large gzip":                   {string(Compress(make([]byte, maxDecompressed+1))), "larger than 32 MiB"},
		"too deeply nested gzip":           {string(nested), "encoded more than 8 times"},
		"UTF-16, little endian, with mark": {"\xff\xfe" + utf16(false), "encoded in UTF-16"},
		"UTF-16, big endian, with mark":    {"\xfe\xff" + utf16(true), "encoded in UTF-16"},
		"UTF-16, little endian, no mark":   {utf16(false), "encoded in UTF-16"},
		"UTF-16, big endian, no mark":      {utf16(true), "encoded in UTF-16"},
		"UTF-16 in gzip":                   {string(Compress([]byte(utf16(false)))), "encoded in UTF-16"},
	} {
		if err := Check([]byte(tc.data), Values{MachineName: "m"}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

// Rule: user-data-one-pass.
func TestCheckFindsMissingValuesBeforeTokenExists(t *testing.T) {
	if err := Check([]byte(secretTemplate), Values{MachineName: "m"}); err != nil {
		t.Errorf("Check requires the token, which does not exist yet: %v", err)
	}
	if err := Check([]byte("<<KUBELET_VERSION>> <<BOOTSTRAP_TOKEN>>"), Values{MachineName: "m"}); err == nil ||
		!strings.Contains(err.Error(), "<<KUBELET_VERSION>>") {
		t.Errorf("Check without a value for KUBELET_VERSION: %v", err)
	}
}

// Rule: unknown-placeholder-is-a-warning.
func TestMisspelledPlaceholdersAreSuspicious(t *testing.T) {
	template := `<<MACHINE_NAME>> <<MACHINENAME>> <<MACHIN_NAME>> <<machine_name>> << API_ENDPOINT >> <<BOOTSTRAP-TOKEN>>
<<NODE_POOL>> %3C%3CAPI_ENDPONT%3E%3E <<!API_ENDPOINT>>
cat <<EOF>>/etc/hosts
cat <<END>>x; cat <<-EOT>>y; cout<<name<<" ">>z; a<<b>>c <<API>>`
	want := []string{"%3C%3CAPI_ENDPONT%3E%3E", "<< API_ENDPOINT >>", "<<BOOTSTRAP-TOKEN>>", "<<MACHINENAME>>",
		"<<MACHIN_NAME>>", "<<NODE_POOL>>", "<<machine_name>>"}
	slices.Sort(want)
	if got := Suspicious([]byte(template)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := Suspicious(Compress([]byte("<<NODE_POOL>>"))); !slices.Equal(got, []string{"<<NODE_POOL>>"}) {
		t.Errorf("in compressed user data: %q", got)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"A", "", 1}, {"", "AB", 2}, {"NAME", "NAME", 0}, {"NAM", "NAME", 1}, {"MANE", "NAME", 2}, {"KITTEN",
		"SITTING", 3}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
