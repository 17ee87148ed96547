package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/yaml"
)

// rehearse builds, publishes and verifies a release of the last commit, with servers on loopback addresses. The
// function also installs the command line with krew. Finally, the function manipulates the release, and checks that
// the steps verify and publish then fail.
func rehearse(ctx context.Context, p *project) error {
	work, err := os.MkdirTemp("", "release-rehearsal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	blobs := filepath.Join(work, "registry")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return err
	}
	host, stop, err := serve(ctx, registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs))))
	if err != nil {
		return err
	}
	defer stop()
	clone, description, err := p.prepare(ctx, filepath.Join(work, "clone"), host+"/machinist")
	if err != nil {
		return err
	}
	folder := filepath.Join(work, "release")
	downloads := "/releases/download/" + description.Tag + "/"
	files, stop, err := serve(ctx, http.StripPrefix(downloads, http.FileServer(http.Dir(filepath.Join(folder, filesFolder)))))
	if err != nil {
		return err
	}
	defer stop()
	description.Repository = "http://" + files
	own, other, err := clone.generateKeys(ctx, work)
	if err != nil {
		return err
	}
	r, err := clone.build(ctx, folder, description)
	if err != nil {
		return err
	}
	// A failed workflow can run again, so publishing the same release twice must succeed.
	for range 2 {
		if err := clone.publish(ctx, r, signer{key: own + ".key"}); err != nil {
			return err
		}
	}
	if err := clone.verify(ctx, r, signer{key: own + ".pub"}); err != nil {
		return err
	}
	if err := clone.installWithKrew(ctx, r, work); err != nil {
		return err
	}
	if err := clone.manipulate(ctx, r, signer{key: own + ".pub"}, signer{key: other + ".pub"}); err != nil {
		return err
	}
	p.progress("the rehearsal of %s succeeded", r.Tag)
	return nil
}

func serve(ctx context.Context, handler http.Handler) (address string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

// prepare clones the repository and makes the changes that precede a release: it dates the version in the changelog,
// and tags the commit. The charts of the clone use the given registry.
func (p *project) prepare(ctx context.Context, folder, registry string) (*project, release, error) {
	root, err := filepath.Abs(p.root)
	if err != nil {
		return nil, release{}, err
	}
	if _, err := p.output(ctx, "git", "clone", "--quiet", "--no-hardlinks", root, folder); err != nil {
		return nil, release{}, err
	}
	commit, err := p.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return nil, release{}, err
	}
	// cosign reads the password of a private key from this variable.
	clone := &project{root: folder, log: p.log, env: []string{"COSIGN_PASSWORD="}}
	if _, err := clone.git(ctx, "checkout", "--quiet", "--detach", commit); err != nil {
		return nil, release{}, err
	}
	tag, err := clone.appVersion()
	if err != nil {
		return nil, release{}, err
	}
	if err := clone.edit(strings.TrimPrefix(tag, "v"), registry); err != nil {
		return nil, release{}, err
	}
	tags, err := clone.tags(tag)
	if err != nil {
		return nil, release{}, err
	}
	commands := [][]string{{"-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@example.com", "-c", "commit.gpgsign=false",
		"commit", "--quiet", "--all", "--message", "Rehearse " + tag}}
	for _, name := range tags {
		commands = append(commands, []string{"-c", "tag.gpgsign=false", "tag", "--force", name})
	}
	for _, command := range commands {
		if _, err := clone.git(ctx, command...); err != nil {
			return nil, release{}, err
		}
	}
	return clone, release{Tag: tag, Registry: registry}, nil
}

// appVersion returns the version of the next release, which all charts have.
func (p *project) appVersion() (string, error) {
	text, err := os.ReadFile(filepath.Join(p.root, "charts", "machinist", "Chart.yaml"))
	if err != nil {
		return "", err
	}
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", err
	}
	return chart.AppVersion, nil
}

// edit changes the clone: it sets the date of the version in the changelog, and the registry in the values of the
// charts.
func (p *project) edit(version, registry string) error {
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version) + `.*$`)
	edits := map[string]func(string) string{filepath.Join(p.root, "CHANGELOG.md"): func(text string) string {
		return heading.ReplaceAllLiteralString(text, "## "+version+", "+time.Now().UTC().Format(time.DateOnly))
	}}
	charts, err := p.charts()
	if err != nil {
		return err
	}
	field := regexp.MustCompile(`(?m)^  registry: .*$`)
	for _, chart := range charts {
		edits[filepath.Join(p.root, "charts", chart, "values.yaml")] = func(text string) string {
			return field.ReplaceAllLiteralString(text, "  registry: "+registry)
		}
	}
	for path, edit := range edits {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(edit(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generateKeys returns the paths of two key pairs without extensions.
func (p *project) generateKeys(ctx context.Context, folder string) (own, other string, err error) {
	own, other = filepath.Join(folder, "own"), filepath.Join(folder, "other")
	for _, path := range []string{own, other} {
		if _, err := p.run(ctx, cosignTool, "generate-key-pair", "--output-key-prefix", path); err != nil {
			return "", "", err
		}
	}
	return own, other, nil
}

// installWithKrew installs the command line for every platform, and runs it as a plugin on this machine.
func (p *project) installWithKrew(ctx context.Context, r *release, work string) error {
	for _, platform := range platforms {
		root := filepath.Join(work, "krew", platform.system+"_"+platform.architecture)
		krew := p.with("KREW_ROOT="+root, "KREW_OS="+platform.system, "KREW_ARCH="+platform.architecture,
			"KREW_NO_UPGRADE_CHECK=1")
		if _, err := krew.run(ctx, krewTool, "install", "--manifest", r.file(krewFile)); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		if platform.system == runtime.GOOS && platform.architecture == runtime.GOARCH {
			if err := p.verifyVersion(ctx, r, filepath.Join(root, "bin", "kubectl-machinist")); err != nil {
				return err
			}
		}
	}
	p.progress("installed the command line with krew for %d platforms", len(platforms))
	return nil
}
