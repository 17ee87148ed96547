package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"machinist.dev/machinist/internal/platform/version"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// page holds what a handler returns for one URL: the name of the template, and the data that the template shows. The
// template reads the field body as .Body.
type page struct {
	title    string
	template string
	body     any
	// summary is what screen readers read when the page changes.
	summary string
	// status is the HTTP status code. The default is 200.
	status int
}

type request struct {
	*http.Request
	server   *Server
	snapshot *Snapshot
	query    url.Values
	// now is the current time of the API server.
	now time.Time
}

type pageError struct {
	status  int
	message string
}

func (e *pageError) Error() string { return e.message }

func notFound(format string, args ...any) error {
	return &pageError{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// pages contains the HTML templates under the names of their pages, and the files that the pages load.
type pages struct {
	templates map[string]*template.Template
	// assets holds the files that pages load, by name. digest is a hash of all these files. Browsers cache the files
	// until the digest changes.
	assets map[string][]byte
	digest string
}

func newPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}, assets: map[string][]byte{}}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	for _, file := range files {
		content, err := assetFiles.ReadFile("assets/" + file.Name())
		if err != nil {
			return nil, err
		}
		hash.Write(content)
		p.assets[file.Name()] = content
	}
	p.digest = hex.EncodeToString(hash.Sum(nil))[:12]
	base, err := template.New("base.html").Funcs(functions()).ParseFS(templateFiles, "templates/base.html",
		"templates/parts.html", "templates/findings.html")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"overview", "machines", "machine", "deployment", "zones", "ownership", "failures",
		"orphans", "plan", "error"} {
		clone, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if p.templates[name], err = clone.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

type view struct {
	Title   string
	Summary string
	Body    any
	// Path is the path of the URL without the query.
	Path     string
	Scope    Scope
	Snapshot *Snapshot
	Now      time.Time
	Digest   string
	Release  string
}

// pageTimeout and planTimeout limit requests for pages and for plans.
const (
	pageTimeout = 10 * time.Second
	planTimeout = time.Minute
)

// fragmentHeader requests only the part of a page that can change.
const fragmentHeader = "X-Machinist-Fragment"

func (s *Server) answer(w http.ResponseWriter, r *http.Request, makePage func(*request) (*page, error)) {
	snapshot := s.hub.snapshot()
	limit := pageTimeout
	if r.Method == http.MethodPost {
		limit = planTimeout
	}
	ctx, end := context.WithTimeout(r.Context(), limit)
	defer end()
	q := &request{Request: r.WithContext(ctx), server: s, snapshot: snapshot, query: r.URL.Query(),
		now: snapshot.serverTime(s.options.Now())}
	p, err := makePage(q)
	if err != nil {
		p = errorPage(err)
	}
	release, _, _ := strings.Cut(version.String(), " ")
	v := view{Title: p.title, Summary: p.summary, Body: p.body, Path: r.URL.Path, Scope: s.options.Source.Scope(),
		Snapshot: snapshot, Now: q.now, Digest: s.pages.digest, Release: release}
	name := "base.html"
	fragment := r.Header.Get(fragmentHeader) != ""
	if fragment {
		name = "live"
	}
	var out bytes.Buffer
	if err := s.pages.templates[p.template].ExecuteTemplate(&out, name, v); err != nil {
		http.Error(w, "The page could not be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	content := bytes.Map(dropInvisible, out.Bytes())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", fragmentHeader)
	if fragment && p.status == 0 {
		sum := sha256.Sum256(content)
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
	}
	_, _ = w.Write(content)
}

// dropInvisible removes control characters, and characters that hide text or change its direction. Templates escape
// only markup.
func dropInvisible(r rune) rune {
	if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
		return -1
	}
	return r
}

func errorPage(err error) *page {
	p := &page{title: "Something went wrong", template: "error", body: err.Error(), status: http.StatusBadGateway}
	var known *pageError
	if errors.As(err, &known) {
		p.status = known.status
		if p.status == http.StatusNotFound {
			p.title = "Not found"
		}
	}
	return p
}

// asset sends a file. Browsers may cache it forever, because its URL contains the digest.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	content, exists := s.pages.assets[name]
	if !exists {
		http.NotFound(w, r)
		return
	}
	kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}[path.Ext(name)]
	w.Header().Set("Content-Type", kind)
	if r.URL.Query().Get("v") == s.pages.digest {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	_, _ = w.Write(content)
}

// objectPath returns the path of the page about an object, such as /machines/prod/web-1.
func objectPath(kind, namespace, name string) string {
	return "/" + kind + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// withQuery adds the parameters that are not empty to a path.
func withQuery(path string, parameters url.Values) string {
	for name, values := range parameters {
		if strings.Join(values, "") == "" {
			delete(parameters, name)
		}
	}
	if encoded := parameters.Encode(); encoded != "" {
		return path + "?" + encoded
	}
	return path
}

// values builds URL parameters from alternating names and values.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}
