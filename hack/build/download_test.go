package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const official = "https://dl.k8s.io/release/v1.37.2/bin/linux/amd64/kubectl"

func checksumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func TestFetchVerifiesDownloads(t *testing.T) {
	program := bytes.Repeat([]byte("program"), 1000)
	unreachable := func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "http://" + l.Addr().String()
	}
	serve := func(handler http.HandlerFunc) func(*testing.T) string {
		return func(t *testing.T) string {
			server := httptest.NewServer(handler)
			t.Cleanup(server.Close)
			return server.URL
		}
	}
	for name, test := range map[string]struct {
		server func(*testing.T) string
		want   string // part of the error
	}{
		"good": {serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/release/v1.37.2/bin/linux/amd64/kubectl" {
				t.Errorf("the mirror got a request for %s", r.URL.Path)
			}
			_, _ = w.Write(program)
		}), ""},
		"corrupt": {serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(append(bytes.Clone(program[:len(program)-1]), '!'))
		}), "checksum"},
		"cut off": {serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "7000")
			_, _ = w.Write(program[:100])
		}), "unexpected EOF"},
		"missing": {serve(http.NotFound), "404"},
		"no answer": {serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			"no answer within 50ms"},
		"no more data": {serve(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(program[:100])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), "no data for 100ms"},
		"unreachable": {unreachable, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			d := downloader{mirror: test.server(t), pins: map[string]string{official: checksumOf(program)},
				connectTimeout: 50 * time.Millisecond, idleTimeout: 100 * time.Millisecond}
			if test.want == "" {
				d.connectTimeout, d.idleTimeout = time.Minute, time.Minute
			}
			folder := t.TempDir()
			file := filepath.Join(folder, "kubectl")
			err := d.fetch(t.Context(), &screen{out: io.Discard}, release{url: official}, file)
			if test.want == "" {
				got, readErr := os.ReadFile(file)
				if err != nil || readErr != nil || !bytes.Equal(got, program) || !isProgram(file) {
					t.Errorf("fetch: %v, and the file has %d bytes (%v)", err, len(got), readErr)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), official) {
				t.Errorf("fetch: %v, want an error about %q that names the URL", err, test.want)
			}
			if left, _ := os.ReadDir(folder); len(left) > 0 {
				t.Errorf("a failed download left files: %v", left)
			}
		})
	}
}

func TestFetchExtractsProgramFromArchive(t *testing.T) {
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for name, content := range map[string]string{"etcd-v3.7.0/README.md": "text", "etcd-v3.7.0/etcd": "program"} {
		if err := files.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(archive.Bytes())
	}))
	defer server.Close()
	const url = "https://github.com/etcd-io/etcd/releases/download/v3.7.0/etcd.tar.gz"
	d := downloader{mirror: server.URL, pins: map[string]string{url: checksumOf(archive.Bytes())},
		connectTimeout: time.Minute, idleTimeout: time.Minute}
	folder := t.TempDir()
	file := filepath.Join(folder, "etcd")
	err := d.fetch(t.Context(), &screen{out: io.Discard}, release{url: url, member: "etcd-v3.7.0/etcd"}, file)
	if got, _ := os.ReadFile(file); err != nil || string(got) != "program" {
		t.Errorf("fetch: %v, and the file has %q", err, got)
	}
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Errorf("the folder contains %v, want only etcd", left)
	}
	err = d.fetch(t.Context(), &screen{out: io.Discard}, release{url: url, member: "etcd-v3.7.0/etcdctl"}, file)
	if err == nil || !strings.Contains(err.Error(), "the archive has no etcd-v3.7.0/etcdctl") {
		t.Errorf("fetch of a member that does not exist: %v", err)
	}
}

func TestParsePinsReadsChecksums(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	pins, err := parsePins([]byte("# comment\n\n" + sum + "  " + official + "\n"))
	if err != nil || len(pins) != 1 || pins[official] != sum {
		t.Errorf("parsePins: %v, %v", pins, err)
	}
	for _, bad := range []string{"abcd " + official, sum, sum + " a b", "not-hex " + official} {
		if _, err := parsePins([]byte("# comment\n" + bad)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("parsePins(%q): %v, want an error about line 2", bad, err)
		}
	}
}
