package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const module = "hack/controlplane"

var sources = map[string]string{
	"etcd":                    "go.etcd.io/etcd/server/v3",
	"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
	"kubeadm":                 "k8s.io/kubernetes/cmd/kubeadm",
	"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
	"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
	"kube-proxy":              "k8s.io/kubernetes/cmd/kube-proxy",
}

var defaultPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

// controlPlane builds or downloads the programs of a Kubernetes control plane into the cache.
type controlPlane struct {
	screen *screen
	// version and etcd are pinned in modfile.
	version, etcd string
	// modfile is go.mod, or versions/VERSION.mod for another supported version of Kubernetes.
	modfile string
	// cache is the parent of folder. The name of this folder consists of the version and a hash of go.mod and go.sum. A
	// symbolic link in cache has the version as its name and points to the folder.
	cache, folder string
	// mode is "build", "download" or "auto". In the mode auto, a failed download is followed by a build.
	mode string
	// assets is a folder with existing programs, or empty. These programs are used unchanged.
	assets     string
	downloader downloader
}

func newControlPlane(getenv func(string) string, s *screen) (*controlPlane, error) {
	c := &controlPlane{screen: s, mode: getenv("CONTROLPLANE"), assets: getenv("KUBEBUILDER_ASSETS"), modfile: "go.mod"}
	mod, err := os.ReadFile(filepath.Join(module, c.modfile))
	if err != nil {
		return nil, fmt.Errorf("run this command in the root folder of the repository: %w", err)
	}
	if c.version, err = requiredVersion(mod, "k8s.io/kubernetes"); err != nil {
		return nil, err
	}
	if other := getenv("KUBERNETES"); other != "" && other != c.version {
		c.version, c.modfile = other, "versions/"+other+".mod"
		if mod, err = os.ReadFile(filepath.Join(module, c.modfile)); err != nil {
			return nil, fmt.Errorf("KUBERNETES is %q: it must be one of the versions in %s/versions", other, module)
		}
	}
	sum, err := os.ReadFile(filepath.Join(module, strings.TrimSuffix(c.modfile, ".mod")+".sum"))
	if err != nil {
		return nil, err
	}
	if c.mode == "" {
		c.mode = "auto"
	}
	if !slices.Contains([]string{"auto", "build", "download"}, c.mode) {
		return nil, fmt.Errorf("CONTROLPLANE is %q: it must be build, download or auto", c.mode)
	}
	if c.etcd, err = requiredVersion(mod, "go.etcd.io/etcd/server/v3"); err != nil {
		return nil, err
	}
	root, err := cacheFolder(getenv)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(append(slices.Clone(mod), sum...))
	c.cache = filepath.Join(root, "controlplane")
	c.folder = filepath.Join(c.cache, c.version+"-"+hex.EncodeToString(hash[:6]))
	c.downloader, err = newDownloader(getenv, filepath.Join(module, "checksums.txt"))
	return c, err
}

// requiredVersion returns the version of a required module in a go.mod file.
func requiredVersion(mod []byte, path string) (string, error) {
	match := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(path) + ` (v\S+)`).FindSubmatch(mod)
	if match == nil {
		return "", fmt.Errorf("%s/go.mod does not require %s", module, path)
	}
	return string(match[1]), nil
}

// cacheFolder returns the cache folder that the scripts in hack also use.
func cacheFolder(getenv func(string) string) (string, error) {
	if root := getenv("MACHINIST_CACHE"); root != "" {
		return filepath.Abs(root)
	}
	if cache := getenv("XDG_CACHE_HOME"); cache != "" {
		return filepath.Join(cache, "machinist"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("MACHINIST_CACHE, XDG_CACHE_HOME and HOME are not set")
	}
	return filepath.Join(home, ".cache", "machinist"), nil
}

// provide builds or downloads the named programs, unless they exist. Without names, it provides defaultPrograms. The
// name kubelet@v1.37.3 means a kubelet that reports this version, for tests of upgrades.
func (c *controlPlane) provide(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = defaultPrograms
	}
	for _, name := range names {
		program, version, _ := strings.Cut(name, "@")
		if sources[program] == "" {
			return fmt.Errorf("unknown program %q", name)
		}
		if version != "" && !strings.HasPrefix(version, minorOf(c.version)+".") {
			return fmt.Errorf("%s: use another patch release of %s, because other releases behave differently", name, c.version)
		}
	}
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return explain(err.Error(), err)
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	missing := c.missingPrograms(ctx, names)
	if len(missing) > 0 {
		begun := time.Now()
		if err := c.obtain(ctx, missing); err != nil {
			return err
		}
		c.screen.print("control plane: %s of %s ready after %s", strings.Join(missing, ", "), c.version,
			roughDuration(time.Since(begun)))
	}
	return c.link()
}

// lock waits until no other build runs, and removes the incomplete files of an interrupted build. Readers need no lock,
// because a program gets its final name only when it is complete.
func (c *controlPlane) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.folder, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, explain(err.Error(), err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		c.screen.print("control plane: another build is running; waiting for it to finish")
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	leftovers, _ := filepath.Glob(filepath.Join(c.folder, ".partial-*"))
	for _, path := range leftovers {
		_ = os.RemoveAll(path)
	}
	return func() { _ = f.Close() }, nil
}

// missingPrograms returns the programs that do not exist yet. The method links the kubectl in PATH if its version is
// compatible.
func (c *controlPlane) missingPrograms(ctx context.Context, names []string) (missing []string) {
	for _, name := range names {
		path := filepath.Join(c.folder, strings.Replace(name, "@", "-", 1))
		switch {
		case isProgram(path), c.assets != "" && isProgram(filepath.Join(c.assets, name)):
		case name == "kubectl" && c.linkKubectl(ctx, path):
		default:
			missing = append(missing, name)
		}
	}
	return missing
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// linkKubectl links the kubectl in PATH if its minor version differs by at most one from the control plane's.
func (c *controlPlane) linkKubectl(ctx context.Context, path string) bool {
	found, err := exec.LookPath("kubectl")
	if err != nil {
		return false
	}
	out, err := exec.CommandContext(ctx, found, "version", "--client", "--output=json").Output()
	if err != nil || !kubectlFits(out, c.version) {
		return false
	}
	if found, err = filepath.Abs(found); err != nil {
		return false
	}
	_ = os.Remove(path) // possibly a link to a deleted file
	return os.Symlink(found, path) == nil
}

// kubectlFits reports whether Kubernetes supports this kubectl with the server version. output is the output of
// `kubectl version --client --output=json`.
func kubectlFits(output []byte, server string) bool {
	var answer struct {
		ClientVersion struct {
			GitVersion string `json:"gitVersion"`
		} `json:"clientVersion"`
	}
	if json.Unmarshal(output, &answer) != nil {
		return false
	}
	client, ok := minorNumber(answer.ClientVersion.GitVersion)
	own, _ := minorNumber(server)
	return ok && client >= own-1 && client <= own+1
}

func minorNumber(version string) (int, bool) {
	rest, ok := strings.CutPrefix(version, "v1.")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return n, ok && err == nil
}

// minorOf returns "v1.37" for "v1.37.2".
func minorOf(version string) string {
	return version[:strings.LastIndex(version, ".")]
}

func (c *controlPlane) obtain(ctx context.Context, names []string) error {
	if c.mode == "build" {
		return c.build(ctx, names)
	}
	reason := c.download(ctx, names)
	switch {
	case reason == nil || ctx.Err() != nil:
		return reason
	case c.mode == "download":
		return fmt.Errorf("%w; CONTROLPLANE=build builds the control plane instead", reason)
	}
	c.screen.print("control plane: %v; building it instead", reason)
	return c.build(ctx, c.missingPrograms(ctx, names))
}

func (c *controlPlane) download(ctx context.Context, names []string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("no release binaries exist for %s", runtime.GOOS)
	}
	for _, name := range names {
		if strings.Contains(name, "@") {
			return fmt.Errorf("%s is not a release", name)
		}
		if _, err := c.downloader.checksum(c.release(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		partial := filepath.Join(c.folder, ".partial-"+name)
		err := c.downloader.fetch(ctx, c.screen, c.release(name), partial)
		if err == nil {
			err = os.Rename(partial, filepath.Join(c.folder, name))
		}
		if err != nil {
			_ = os.Remove(partial)
			return err
		}
	}
	return nil
}

func (c *controlPlane) release(name string) release {
	if name == "etcd" {
		archive := "etcd-" + c.etcd + "-linux-" + runtime.GOARCH
		return release{
			url:    "https://github.com/etcd-io/etcd/releases/download/" + c.etcd + "/" + archive + ".tar.gz",
			member: archive + "/etcd",
		}
	}
	return release{url: "https://dl.k8s.io/release/" + c.version + "/bin/linux/" + runtime.GOARCH + "/" + name}
}

// build calls the go command once for each version that programs must report.
func (c *controlPlane) build(ctx context.Context, names []string) error {
	byVersion := map[string][]string{}
	for _, name := range names {
		_, version, _ := strings.Cut(name, "@")
		byVersion[version] = append(byVersion[version], name)
	}
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		if err := c.buildVersion(ctx, version, byVersion[version]); err != nil {
			return err
		}
	}
	return nil
}

func (c *controlPlane) buildVersion(ctx context.Context, version string, names []string) error {
	partial, err := os.MkdirTemp(c.folder, ".partial-build-")
	if err != nil {
		return explain(err.Error(), err)
	}
	defer func() { _ = os.RemoveAll(partial) }()
	linked := version
	if linked == "" {
		linked = c.version
	}
	job := compilation{
		label: "control plane " + linked, dir: module,
		flags: []string{"-buildvcs=false", "-ldflags=" + versionFlags(linked), "-o", partial + "/"},
	}
	if c.modfile != "go.mod" {
		job.modfile = c.modfile
	}
	for _, name := range names {
		program, _, _ := strings.Cut(name, "@")
		job.packages = append(job.packages, sources[program])
	}
	if err := compile(ctx, c.screen, job); err != nil {
		return err
	}
	for _, name := range names {
		program, _, _ := strings.Cut(name, "@")
		built := program
		if program == "etcd" {
			built = "server" // The go command ignores the version at the end of the path.
		}
		to := filepath.Join(c.folder, strings.Replace(name, "@", "-", 1))
		if err := os.Rename(filepath.Join(partial, built), to); err != nil {
			return err
		}
	}
	return nil
}

// versionFlags returns linker flags with the Kubernetes version. Otherwise the programs report v0.0.0-master, and the
// API server emulates that version.
func versionFlags(version string) string {
	var flags []string
	minor, _ := minorNumber(version)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range map[string]string{
			"gitVersion": version, "gitMajor": "1", "gitMinor": strconv.Itoa(minor), "gitCommit": "", "gitTreeState": "clean",
		} {
			flags = append(flags, "-X "+pkg+"."+name+"="+value)
		}
	}
	slices.Sort(flags)
	return "-s -w " + strings.Join(flags, " ")
}

// link points the symbolic link of the version to the new folder. The method replaces the link atomically, because
// tests may use it at the same time.
func (c *controlPlane) link() error {
	link, target := filepath.Join(c.cache, c.version), filepath.Base(c.folder)
	if current, err := os.Readlink(link); err == nil && current == target {
		return nil
	}
	temporary := filepath.Join(c.cache, fmt.Sprintf(".%s.%d", c.version, os.Getpid()))
	if err := os.Symlink(target, temporary); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link %s: %w", link, err)
	}
	return os.Rename(temporary, link)
}
