package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// checkKubeconfig returns an error if neither the flags nor a kubeconfig specify a cluster. client-go would otherwise
// connect to localhost:8080.
func (e *Env) checkKubeconfig() error {
	if e.overrides.ClusterInfo.Server != "" {
		return nil
	}
	loader := e.clientConfig()
	if path := e.rules.ExplicitPath; path != "" {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--kubeconfig=%s: %w", path, withoutPath(err))
		}
	} else if files := loader.ConfigAccess().GetLoadingPrecedence(); !slices.ContainsFunc(files, exists) {
		switch _, err := rest.InClusterConfig(); {
		case err == nil:
			return nil
		case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
			return fmt.Errorf("%s=%s: there is no such file", clientcmd.RecommendedConfigPathEnvVar,
				os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
		}
		return fmt.Errorf("there is no kubeconfig: %s does not exist, and neither --kubeconfig nor %s is set",
			strings.Join(files, ", "), clientcmd.RecommendedConfigPathEnvVar)
	}
	config, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	if config.CurrentContext != "" || e.overrides.CurrentContext != "" || e.overrides.Context.Cluster != "" {
		return nil // client-go reports a context that does not exist.
	}
	if _, err := rest.InClusterConfig(); err == nil {
		return nil
	}
	where := "--kubeconfig"
	if e.rules.ExplicitPath == "" {
		where = "the kubeconfig " + strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", ")
	} else {
		where += "=" + e.rules.ExplicitPath
	}
	if len(config.Contexts) == 0 {
		return fmt.Errorf("%s contains no context", where)
	}
	return fmt.Errorf("%s: no context is chosen; choose one with --context: %s", where,
		strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// withoutPath removes the path from an error about a missing file, because the caller's message contains it.
func withoutPath(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file")
	}
	return err
}
