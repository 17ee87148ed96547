package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Version is the Kubernetes version of the binaries that Locate finds, from hack/controlplane/go.mod.
const Version = "v1.37.2"

const (
	etcdBinary              = "etcd"
	apiServerBinary         = "kube-apiserver"
	controllerManagerBinary = "kube-controller-manager"
	schedulerBinary         = "kube-scheduler"
	kubectlBinary           = "kubectl"
)

// Locate returns the absolute path of a binary such as "kube-apiserver" or "kubectl". Locate looks in the folder
// $KUBEBUILDER_ASSETS, and then in the folder of `make controlplane`:
//
//	${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/controlplane/<Version>
func Locate(name string) (string, error) {
	var tried []string
	for _, dir := range []func() (string, error){assetsDir, cacheDir} {
		path, err := dir()
		if err != nil {
			return "", fmt.Errorf("locate %s: %w", name, err)
		}
		if path == "" {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", fmt.Errorf("locate %s: %w", name, err)
		}
		// The cache folder is a symbolic link, and a newer build changes its target. The resolved path stays valid.
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved
		}
		path = filepath.Join(path, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
		tried = append(tried, path)
	}
	return "", fmt.Errorf("find the binary %s: none at %q; run `make controlplane`", name, tried)
}

func assetsDir() (string, error) {
	return os.Getenv("KUBEBUILDER_ASSETS"), nil
}

func cacheDir() (string, error) {
	root, err := CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "controlplane", Version), nil
}

// CacheDir returns the folder in which the scripts in hack store the programs that they build.
func CacheDir() (string, error) {
	if root := os.Getenv("MACHINIST_CACHE"); root != "" {
		return root, nil
	}
	// os.UserCacheDir depends on the system, but the build scripts always use this folder.
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home := os.Getenv("HOME")
		if home == "" {
			return "", errors.New("none of MACHINIST_CACHE, XDG_CACHE_HOME and HOME is set")
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "machinist"), nil
}

type binaries struct {
	etcd, apiServer, controllerManager, scheduler, kubectl string
}

// locateBinaries finds the binaries that the options need. The error names all missing binaries.
func locateBinaries(o Options) (binaries, error) {
	var b binaries
	var errs []error
	find := func(name string, path *string) {
		var err error
		*path, err = Locate(name)
		errs = append(errs, err)
	}
	find(etcdBinary, &b.etcd)
	find(apiServerBinary, &b.apiServer)
	// The control plane does not need kubectl. Callers use kubectl in PATH if none was built.
	if b.kubectl, _ = Locate(kubectlBinary); b.kubectl == "" {
		b.kubectl = kubectlBinary
	}
	if o.WithControllerManager {
		find(controllerManagerBinary, &b.controllerManager)
	}
	if o.WithScheduler {
		find(schedulerBinary, &b.scheduler)
	}
	return b, errors.Join(errs...)
}
