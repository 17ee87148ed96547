//go:build e2e

package driver_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/providers/aws/apimodel"
)

// newer are the members and values that are newer than Debian's package of 2022.
func newer() []string { return nil }

// published returns the API that AWS publishes.
func published(t *testing.T) *apimodel.Model {
	t.Helper()
	model, err := apimodel.Load(filepath.Join(unpacked(t), "usr/lib/python3/dist-packages/botocore/data"), newer()...)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// The API that AWS publishes accepts every request of the driver and every answer of the fake.
func TestPublishedAPIAcceptsEveryCall(t *testing.T) {
	model := published(t)
	var judges []*apimodel.Judge
	judged := func(next http.Handler) http.Handler {
		j := model.Judge(next)
		judges = append(judges, j)
		return j
	}
	newCloud(t, nil, judged).conforms(86)
	c := newCloud(t, nil, judged)
	c.must(c.journey())
	c.must(c.adoption())
	calls := map[string]int{}
	for _, j := range judges {
		for _, problem := range j.Problems() {
			t.Error(problem)
		}
		for action, count := range j.Calls() {
			calls[action] += count
		}
	}
	t.Logf("checked calls: %v", calls)
	for _, s := range policy(t).Statement {
		for _, action := range s.Action {
			_, name, _ := strings.Cut(action, ":")
			if name == "DeleteMessage" {
				name = "DeleteMessageBatch"
			}
			if name != "PassRole" && calls[name] == 0 {
				t.Errorf("no call of %s was checked", name)
			}
		}
	}
}

// The judge notices a wrong name, value or type in a request or an answer.
func TestPublishedAPINoticesBreakages(t *testing.T) {
	model := published(t)
	for problem, broken := range map[string]struct{ request, answer [2]string }{
		"RunInstances.InstanceKind: the member does not exist": {request: [2]string{"InstanceType=",
			"InstanceKind="}},
		"RunInstances.MetadataOptions.HttpTokens: the value \"always\"": {request: [2]string{"HttpTokens=required",
			"HttpTokens=always"}},
		"RunInstances.BlockDeviceMapping.Ebs.Encrypted: \"perhaps\"": {request: [2]string{"Encrypted=true",
			"Encrypted=perhaps"}},
		"RunInstancesResponse.instancesSet.privateIp: the member": {answer: [2]string{"privateIpAddress>",
			"privateIp>"}},
		"RunInstancesResponse.instancesSet.instanceState.name: the value": {answer: [2]string{">pending<", ">awake<"}},
		"RunInstancesResponse.instancesSet.launchTime: \"20": {answer: [2]string{"<launchTime>",
			"<launchTime>20 "}},
	} {
		judge := model.Judge(replacing(newCloud(t, nil).AWS, broken.answer))
		c := newCloud(t, nil, func(http.Handler) http.Handler { return renaming(judge, broken.request) })
		_, _ = c.driver().Create(t.Context(), request("a", class()))
		found := judge.Problems()
		if !slices.ContainsFunc(found, func(p string) bool { return strings.HasPrefix(p, problem) }) {
			t.Errorf("the judge reports %q, and not %q", found, problem)
		}
	}
}

// renaming replaces a text in the bodies of requests.
func renaming(next http.Handler, change [2]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if change[0] != "" {
			body = []byte(strings.ReplaceAll(string(body), change[0], change[1]))
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// replacing replaces a text in answers.
func replacing(next http.Handler, change [2]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		text := answer.Body.String()
		if change[0] != "" && strings.Contains(text, "<RunInstancesResponse") {
			text = strings.ReplaceAll(text, change[0], change[1])
		}
		w.WriteHeader(answer.Code)
		_, _ = io.WriteString(w, text)
	})
}
