package provider_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goCommand runs the go command in the core module without the workspace, like a user who uses only that module.
func goCommand(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

var cloudSDKs = []string{
	"cloud.google.com/go", "google.golang.org/api",
	"github.com/Azure/azure-sdk-for-go", "github.com/Azure/go-autorest", "github.com/AzureAD/",
	"github.com/aws/", "github.com/gophercloud/", "github.com/hetznercloud/", "github.com/digitalocean/",
	"github.com/linode/",
	"github.com/vmware/", "github.com/oracle/", "github.com/aliyun/", "github.com/alibabacloud-go/",
	"github.com/tencentcloud/",
	"github.com/huaweicloud/", "github.com/scaleway/", "github.com/packethost/", "github.com/equinix/",
	"github.com/vultr/",
	"github.com/exoscale/", "github.com/IBM/", "github.com/ovh/", "github.com/UpCloudLtd/", "github.com/ionos-cloud/",
	"github.com/nutanix-cloud-native/", "k8s.io/cloud-provider-", "k8s.io/legacy-cloud-providers",
}

// notSDKs lists modules that the test accepts although they match a prefix in cloudSDKs. Telemetry libraries use
// these modules to detect where the process runs.
var notSDKs = []string{"cloud.google.com/go/compute/metadata"}

// The test checks the compiled packages. The test does not check the module graph, because it contains modules of
// packages that are not compiled.
func TestTheCoreModuleHasNoCloudSDK(t *testing.T) {
	root := filepath.Dir(goCommand(t, "env", "GOMOD")[0])
	modules := goCommand(t, "list", "-C", root, "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	slices.Sort(modules)
	modules = slices.Compact(modules)
	if !slices.Contains(modules, "k8s.io/client-go") || len(modules) < 50 {
		t.Fatalf("the core module is built from only %d modules: the test checks nothing", len(modules))
	}
	for _, module := range modules {
		isSDK := slices.ContainsFunc(cloudSDKs, func(sdk string) bool { return strings.HasPrefix(module, sdk) })
		if isSDK && !slices.Contains(notSDKs, module) {
			t.Errorf("the core module is built with %s, which belongs in the module of its provider", module)
		}
	}
}

func TestDriversDoNotDependOnControllers(t *testing.T) {
	for _, dependency := range goCommand(t, "list", "-deps", ".", "./conformance") {
		for _, heavy := range []string{"machinist.dev/machinist/internal/", "machinist.dev/machinist/api/",
			"k8s.io/client-go/", "sigs.k8s.io/controller-runtime"} {
			if strings.HasPrefix(dependency, heavy) {
				t.Errorf("package provider or its conformance suite imports %s", dependency)
			}
		}
	}
}
