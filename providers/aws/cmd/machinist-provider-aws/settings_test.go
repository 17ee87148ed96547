package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/driver"
	"machinist.dev/machinist/providers/aws/fakeaws"
	"machinist.dev/machinist/providers/aws/machine/sample"
)

func parse(t *testing.T, flags string) *settings {
	t.Helper()
	s := &settings{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.addFlags(fs)
	if err := fs.Parse(strings.Fields(flags)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOptionsErrorsNameFlag(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const queue = "--aws-interruption-queue=eu-west-1=https://sqs.eu-west-1.amazonaws.com/1/q"
	for flags, message := range map[string]string{
		"":                                "",
		"--aws-process-identity-for=team": "",
		"--aws-process-identity-for=team=arn:aws:iam::111122223333:role/machinist": "",
		"--aws-process-identity-for=*":                                             "--aws-process-identity-for",
		"--aws-process-identity-for=team=me":                                       "NAMESPACE=ROLE-ARN",
		"--aws-create-settle=0s":                                                   "--aws-create-settle is 0s",
		queue:                                                                      "",
		queue + " " + queue:                                                        "the region eu-west-1 has two queues",
		"--aws-interruption-queue=https://sqs.eu-west-1.amazonaws.com/1/q": "--aws-interruption-queue",
		"--aws-allow-address=localhost":                                    `--aws-allow-address: "localhost"`,
		"--aws-ca-file=" + empty:                                           "--aws-ca-file contains no certificate",
		"--aws-ca-file=/nowhere":                                           "--aws-ca-file: open /nowhere",
	} {
		_, err := parse(t, flags).options(t.Context())
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %v, want an error with %q", flags, err, message)
		}
	}
}

const (
	accessKey = "AKIAMACHINISTTESTKEY"
	secretKey = "the+secret+of+the+access+key/machinist00"
	role      = "arn:aws:iam::111122223333:role/machinist"
)

// The process's own credentials come from its environment: a web identity (IRSA), EKS Pod Identity, or the instance
// profile.
func TestProcessIdentity(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T){
		"web identity": func(t *testing.T) {
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("the-token"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
			t.Setenv("AWS_ROLE_ARN", role)
		},
		"Pod Identity": func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "the-token" {
					http.Error(w, "no token", http.StatusForbidden)
					return
				}
				writeKey(w)
			}))
			t.Cleanup(server.Close)
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL+"/v1/credentials")
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the-token")
		},
		"instance profile": func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(serveMetadata))
			t.Cleanup(server.Close)
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
				t.Setenv(variable, "")
			}
			prepare(t)
			server := httptest.NewServer(fakeaws.New(fakeaws.Options{AccessKey: accessKey, SecretKey: secretKey,
				Roles: []fakeaws.Role{{ARN: role, WebIdentityToken: "the-token"}}}))
			t.Cleanup(server.Close)
			o, err := parse(t, "--aws-process-identity-for=team --aws-process-identity-region=eu-west-1 --aws-endpoint="+
				server.URL).options(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d, err := driver.New(o)
			if err != nil {
				t.Fatal(err)
			}
			secret := provider.NewCredentials(map[string][]byte{"processIdentity": []byte("true")})
			class := provider.Class{Spec: sample.Spec(), Credentials: secret.InNamespace("team")}
			if _, err := d.List(t.Context(), provider.ListRequest{Class: class, ClusterID: "a"}); err != nil {
				t.Errorf("a Secret with a grant: %v", err)
			}
			class.Credentials = secret.InNamespace("other")
			if _, err := d.List(t.Context(), provider.ListRequest{Class: class, ClusterID: "a"}); err == nil {
				t.Error("a Secret without a grant uses the credentials of the process")
			}
		})
	}
}

func writeKey(w http.ResponseWriter) {
	_ = json.NewEncoder(w).Encode(map[string]string{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": accessKey,
		"SecretAccessKey": secretKey, "Token": "", "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		"LastUpdated": time.Now().UTC().Format(time.RFC3339)})
}

// serveMetadata is the instance metadata service (IMDSv2).
func serveMetadata(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/latest/api/token":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
		_, _ = io.WriteString(w, "session")
	case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
		http.Error(w, "no session", http.StatusUnauthorized)
	case strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "security-credentials"):
		_, _ = io.WriteString(w, "machinist")
	default:
		writeKey(w)
	}
}
