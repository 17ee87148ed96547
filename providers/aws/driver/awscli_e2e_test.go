//go:build e2e

package driver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/apimodel"
)

// unpacked returns the folder with Debian's packages.
func unpacked(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../../hack/aws/install.sh").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("unpack Debian's packages: %v: %s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// cli runs Debian's aws with the fake AWS. It decodes the output into a value, unless the value is nil.
func (c *cloud) cli(root string, into any, args ...string) {
	c.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{filepath.Join(root, "usr/bin/aws"), "--endpoint-url", c.url,
		"--output", "json", "--no-cli-pager"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.TempDir(), "AWS_ACCESS_KEY_ID=" + accessKey,
		"AWS_SECRET_ACCESS_KEY=" + secretKey, "AWS_DEFAULT_REGION=eu-west-1", "AWS_EC2_METADATA_DISABLED=true",
		"PYTHONPATH=" + filepath.Join(root, "usr/lib/python3/dist-packages"), "PYTHONDONTWRITEBYTECODE=1"}
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		c.Fatalf("aws %v: %v: %s", args, err, failed.Stderr)
	}
	c.must(err)
	if into != nil {
		c.must(json.Unmarshal(out, into))
	}
}

// Debian's aws reads and changes the instances of the driver, and the driver sees the changes.
func TestAWSCLIReadsAndChangesInstances(t *testing.T) {
	root := unpacked(t)
	var judge *apimodel.Judge
	c := newCloud(t, nil, func(next http.Handler) http.Handler {
		judge = published(t).Judge(next)
		return judge
	})
	d := c.driver()
	var ids []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		ids = append(ids, idOf(c.launchOne(d, name, class())))
	}
	query := []string{"ec2", "describe-instances", "--filters", "Name=tag:machinist-cluster,Values=" + cluster,
		"Name=instance-state-name,Values=running", "--query", "Reservations[].Instances[].InstanceId"}
	for _, paging := range [][]string{nil, {"--page-size", "5"}, {"--max-items", "100"}} {
		var found []string
		c.cli(root, &found, append(query, paging...)...)
		if !slices.Equal(found, ids) {
			t.Errorf("aws shows the instances %v, want %v", found, ids)
		}
	}
	in := provider.Instance{ProviderID: "aws:///eu-west-1a/" + ids[0], Scope: "eu-west-1"}
	c.cli(root, nil, "ec2", "stop-instances", "--instance-ids", ids[0])
	got, err := d.Get(t.Context(), getRequest("a", class(), &in))
	c.must(err)
	if got.State != provider.StateStopped {
		t.Errorf("after aws ec2 stop-instances, the driver reports %s", got.State)
	}
	c.cli(root, nil, "ec2", "create-tags", "--resources", ids[0], "--tags", "Key=machinist-machine-uid,Value=other")
	_, err = d.Delete(t.Context(), deleteRequest("a", class(), &in))
	c.wantCode(err, provider.FailedPrecondition)
	c.cli(root, nil, "ec2", "terminate-instances", "--instance-ids", ids[0])
	_, err = d.Get(t.Context(), getRequest("a", class(), &in))
	c.wantCode(err, provider.NotFound)

	var identity struct{ Account string }
	c.cli(root, &identity, "sts", "get-caller-identity")
	if identity.Account != "111122223333" {
		t.Errorf("aws shows the account %q", identity.Account)
	}
	for i, name := range []string{"b", "c", "d", "e", "f"} {
		one := provider.Instance{ProviderID: "aws:///eu-west-1a/" + ids[i+1], Scope: "eu-west-1"}
		c.awaitGone(d, deleteRequest(name, class(), &one))
	}
	for resource, query := range map[string]string{"describe-volumes": "Volumes[].VolumeId",
		"describe-network-interfaces": "NetworkInterfaces[].NetworkInterfaceId"} {
		var left []string
		c.cli(root, &left, "ec2", resource, "--query", query)
		if len(left) > 0 {
			t.Errorf("aws ec2 %s shows %v after all deletions", resource, left)
		}
	}
	for _, problem := range judge.Problems() {
		t.Error(problem)
	}
}
