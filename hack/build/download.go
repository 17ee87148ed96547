package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

type release struct {
	url string
	// member is the path of the program in the archive at url, or empty if url is the program itself.
	member string
}

// downloader downloads releases with pinned checksums.
type downloader struct {
	// mirror is a URL that replaces the scheme and host of each download. If mirror is empty, the original URLs are
	// used.
	mirror string
	// pins contains the SHA-256 checksum of each URL.
	pins    map[string]string
	pinFile string
	// connectTimeout is the maximum time until the response begins, and idleTimeout is the maximum time without data
	// after that.
	connectTimeout, idleTimeout time.Duration
}

// newDownloader reads the pinned checksums. CONTROLPLANE_MIRROR is the URL of a server with the same paths as the
// official servers. CONTROLPLANE_CHECKSUMS names another file with checksums.
func newDownloader(getenv func(string) string, pinFile string) (downloader, error) {
	d := downloader{mirror: getenv("CONTROLPLANE_MIRROR"), pinFile: pinFile, connectTimeout: 3 * time.Second, idleTimeout: 10 * time.Second}
	if file := getenv("CONTROLPLANE_CHECKSUMS"); file != "" {
		d.pinFile = file
	}
	if d.mirror != "" {
		if u, err := url.Parse(d.mirror); err != nil || u.Host == "" {
			return d, fmt.Errorf("CONTROLPLANE_MIRROR is %q: it must be a URL such as https://mirror.example.com", d.mirror)
		}
	}
	text, err := os.ReadFile(d.pinFile)
	if err != nil {
		return d, fmt.Errorf("read the pinned checksums: %w", err)
	}
	d.pins, err = parsePins(text)
	if err != nil {
		return d, fmt.Errorf("%s: %w", d.pinFile, err)
	}
	return d, nil
}

// parsePins parses lines with a SHA-256 checksum and a URL. Lines that begin with # are comments.
func parsePins(text []byte) (map[string]string, error) {
	pins := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if sum, err := hex.DecodeString(fields[0]); err != nil || len(sum) != sha256.Size || len(fields) != 2 {
			return nil, fmt.Errorf("line %d is not a SHA-256 checksum and a URL", n)
		}
		pins[fields[1]] = fields[0]
	}
	return pins, nil
}

func (d downloader) checksum(r release) (string, error) {
	if sum := d.pins[r.url]; sum != "" {
		return sum, nil
	}
	return "", fmt.Errorf("%s has no checksum of %s", d.pinFile, path.Base(r.url))
}

// fetch downloads a program. The method removes the file if the download fails or the checksum differs.
func (d downloader) fetch(ctx context.Context, s *screen, r release, file string) error {
	want, err := d.checksum(r)
	if err != nil {
		return err
	}
	archive := file
	if r.member != "" {
		archive = file + ".tar.gz"
		defer func() { _ = os.Remove(archive) }()
	}
	got, err := d.get(ctx, s, r.url, archive)
	if err == nil && got != want {
		err = fmt.Errorf("the SHA-256 checksum is %s, want %s", got, want)
	}
	if err == nil && r.member != "" {
		err = extract(archive, r.member, file)
	}
	if err == nil {
		err = os.Chmod(file, 0o755)
	}
	if err != nil {
		_ = os.Remove(archive)
		return fmt.Errorf("download %s: %w", r.url, err)
	}
	return nil
}

func (d downloader) get(ctx context.Context, s *screen, address, file string) (string, error) {
	response, watchdog, err := d.open(ctx, address)
	if err != nil {
		return "", err
	}
	defer watchdog.stop()
	defer func() { _ = response.Body.Close() }()
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	body := &meteredReader{from: response.Body, watchdog: watchdog, screen: s, name: path.Base(address),
		total: response.ContentLength}
	_, err = io.Copy(io.MultiWriter(out, sum), body)
	s.clearLine()
	if err = errors.Join(err, out.Close()); err != nil {
		return "", watchdog.cause(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// open sends the request. The returned watchdog cancels it when no data arrives.
func (d downloader) open(ctx context.Context, address string) (*http.Response, *watchdog, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	if d.mirror != "" {
		mirror, err := url.Parse(d.mirror)
		if err != nil {
			return nil, nil, err
		}
		u.Scheme, u.Host, u.Path = mirror.Scheme, mirror.Host, path.Join(mirror.Path, u.Path)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{ctx: ctx, cancel: cancel, limit: d.idleTimeout}
	w.timer = time.AfterFunc(d.connectTimeout, func() { cancel(fmt.Errorf("no answer within %s", d.connectTimeout)) })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		w.stop()
		return nil, nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: d.connectTimeout}).DialContext
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		w.stop()
		return nil, nil, w.cause(err)
	}
	if response.StatusCode != http.StatusOK {
		w.stop()
		_ = response.Body.Close()
		return nil, nil, fmt.Errorf("the server returned %s", response.Status)
	}
	w.reset()
	return response, w, nil
}

// watchdog cancels a download when no data arrives for a while.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// reset restarts the timer after data has arrived.
func (w *watchdog) reset() {
	w.timer.Stop()
	w.timer = time.AfterFunc(w.limit, func() { w.cancel(fmt.Errorf("no data for %s", w.limit)) })
}

func (w *watchdog) stop() { w.timer.Stop() }

// cause returns the reason for which the watchdog canceled the download. If the watchdog did not cancel it, cause
// returns err.
func (w *watchdog) cause(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return err
}

// meteredReader shows the progress of a download and resets its watchdog.
type meteredReader struct {
	from     io.Reader
	watchdog *watchdog
	screen   *screen
	name     string
	total    int64
	arrived  int64
	shown    time.Time
}

func (r *meteredReader) Read(into []byte) (int, error) {
	n, err := r.from.Read(into)
	if n > 0 {
		r.arrived += int64(n)
		r.watchdog.reset()
	}
	interval := logInterval
	if r.screen.terminal {
		interval = terminalInterval
	}
	if now := time.Now(); now.Sub(r.shown) >= interval {
		r.shown = now
		text := fmt.Sprintf("control plane: downloading %s, %d MB", r.name, r.arrived>>20)
		if r.total > 0 {
			text += fmt.Sprintf(" of %d MB", r.total>>20)
		}
		r.screen.update(text)
	}
	return n, err
}

func extract(archive, member, file string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the archive has no %s", member)
		}
		if err != nil {
			return err
		}
		if path.Clean(header.Name) != member {
			continue
		}
		out, err := os.Create(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, files)
		return errors.Join(err, out.Close())
	}
}
