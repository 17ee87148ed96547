// Command modules creates a module proxy from the working tree. The proxy is a folder with the Go modules of this
// repository. Each module has the version that the other modules require in their go.mod files, even if this version is
// not tagged yet. The command prints this version.
//
//	modules <root of the repository> <folder of the proxy>
//
// With GOPROXY=file://<folder of the proxy>, modules outside of this repository can use these modules.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// folders are the folders of the published modules, in the order of their dependencies.
var folders = []string{"api", ".", "providers/azure", "providers/libvirt", "providers/openstack", "providers/vsphere"}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: modules <root of the repository> <folder of the proxy>")
		os.Exit(2)
	}
	version, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
	fmt.Println(version)
}

func run(root, proxy string) (version string, err error) {
	mods := make([]*modfile.File, len(folders))
	own := map[string]bool{}
	for i, folder := range folders {
		path := filepath.Join(root, folder, "go.mod")
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if mods[i], err = modfile.Parse(path, content, nil); err != nil {
			return "", err
		}
		own[mods[i].Module.Mod.Path] = true
	}
	if version, err = versionOf(mods, own); err != nil {
		return "", err
	}
	for i, folder := range folders {
		m := module.Version{Path: mods[i].Module.Mod.Path, Version: version}
		if err := publish(root, folder, proxy, m); err != nil {
			return "", fmt.Errorf("%s: %w", m, err)
		}
	}
	return version, nil
}

// versionOf returns the version that the modules of this repository require of each other. All requirements must agree.
func versionOf(mods []*modfile.File, own map[string]bool) (version string, err error) {
	for _, mod := range mods {
		for _, r := range mod.Require {
			switch {
			case !own[r.Mod.Path]:
			case version == "":
				version = r.Mod.Version
			case r.Mod.Version != version:
				err = errors.Join(err, fmt.Errorf("%s requires %s, but another module requires "+
					"version %s of the modules in this repository",
					mod.Syntax.Name, r.Mod, version))
			}
		}
	}
	if module.IsPseudoVersion(version) {
		err = errors.Join(err, fmt.Errorf("the modules require each other at %s, which is a pseudo-version: use a version that can be tagged", version))
	}
	return version, err
}

// publish writes the files that the go command downloads for a module version.
func publish(root, folder, proxy string, m module.Version) error {
	files, err := filesOf(root, folder)
	if err != nil {
		return err
	}
	versions := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(versions, m.Version+".zip"))
	if err != nil {
		return err
	}
	if err := errors.Join(zip.Create(archive, m, files), archive.Close()); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		return err
	}
	// If a user requests an exact version of a module, the Go command ignores the time of this version. A constant time
	// makes the output reproducible.
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, time.Unix(0, 0).UTC()})
	return errors.Join(err,
		os.WriteFile(filepath.Join(versions, m.Version+".mod"), mod, 0o644),
		os.WriteFile(filepath.Join(versions, m.Version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(versions, "list"), []byte(m.Version+"\n"), 0o644))
}

// filesOf returns all files of a module that git does not ignore. As in the go command, a module without a license gets
// the LICENSE of the repository.
func filesOf(root, folder string) (files []zip.File, err error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = filepath.Join(root, folder)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	licensed := false
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		f := file{name, filepath.Join(root, folder, name)}
		if _, err := f.Lstat(); errors.Is(err, fs.ErrNotExist) {
			continue // a deletion that is not committed yet
		}
		files = append(files, f)
		licensed = licensed || name == "LICENSE"
	}
	if !licensed {
		files = append(files, file{"LICENSE", filepath.Join(root, "LICENSE")})
	}
	return files, nil
}

type file struct{ name, path string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }
