package fakeaws

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	testKey    = "AKIAMACHINISTTESTKEY"
	testSecret = "the+secret"
)

// answerOf contains the parts of all answers that the tests read.
type answerOf struct {
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	Instance  string   `xml:"instancesSet>item>instanceId"`
	Listed    []string `xml:"reservationSet>item>instancesSet>item>instanceId"`
	States    []string `xml:"reservationSet>item>instancesSet>item>instanceState>name"`
	NextToken string   `xml:"nextToken"`
}

// send signs a call at a time and sends it.
func send(t *testing.T, a *AWS, at time.Time, secret string, values url.Values) (out answerOf) {
	t.Helper()
	body := values.Encode()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://aws.example.com/",
		strings.NewReader(body))
	r.Header.Set("X-Amz-Date", at.UTC().Format("20060102T150405Z"))
	c := &call{aws: a, request: r, payload: []byte(body)}
	date := at.UTC().Format("20060102")
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/eu-west-1/ec2/aws4_request, "+
		"SignedHeaders=host;x-amz-date, Signature=%s", testKey, date,
		c.sign(secret, date, "eu-west-1", "ec2", []string{"host", "x-amz-date"})))
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if err := xml.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("the answer %q is not XML: %v", w.Body, err)
	}
	return out
}

func form(action string, fields ...string) url.Values {
	values := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	return values
}

// run returns a RunInstances call.
func run(token string, more ...string) url.Values {
	return form("RunInstances", append([]string{"MinCount", "1", "MaxCount", "1", "ClientToken", token, "InstanceType",
		"m6i.large", "ImageId", "ami-0a000000000000001", "NetworkInterface.1.DeviceIndex", "0",
		"NetworkInterface.1.SubnetId", "subnet-0a000000000000001",
		"NetworkInterface.1.SecurityGroupId.1", "sg-0a000000000000001"}, more...)...)
}

func TestSignatureIsChecked(t *testing.T) {
	a := New(Options{AccessKey: testKey, SecretKey: testSecret})
	now := time.Now()
	for name, test := range map[string]struct {
		at     time.Time
		secret string
		want   string
	}{
		"good":           {now, testSecret, ""},
		"another secret": {now, "another", "AuthFailure"},
		"too old":        {now.Add(-6 * time.Minute), testSecret, "RequestExpired"},
		"too new":        {now.Add(6 * time.Minute), testSecret, "RequestExpired"},
	} {
		if got := send(t, a, test.at, test.secret, form("DescribeInstances")); got.Code != test.want {
			t.Errorf("%s: got the code %q, want %q", name, got.Code, test.want)
		}
	}
}

// Whatever the fake does not know is an error.
func TestUnknownIsRefused(t *testing.T) {
	a := New(Options{AccessKey: testKey, SecretKey: testSecret})
	for want, values := range map[string]url.Values{
		"InvalidAction":               form("DescribeNothing"),
		"UnknownParameter":            form("DescribeInstances", "Color", "blue"),
		"InvalidParameterValue":       form("DescribeInstances", "Filter.1.Name", "color", "Filter.1.Value.1", "blue"),
		"NoSuchVersion":               {"Action": {"DescribeInstances"}, "Version": {"2000-01-01"}},
		"InvalidInstanceID.NotFound":  form("TerminateInstances", "InstanceId.1", "i-0f000000000000001"),
		"InvalidInstanceID.Malformed": form("TerminateInstances", "InstanceId.1", "x"),
	} {
		a.Launch(nil)
		if got := send(t, a, time.Now(), testSecret, values); got.Code != want {
			t.Errorf("%v: got the code %q, want %q", values, got.Code, want)
		}
	}
}

func TestClientTokenIsIdempotent(t *testing.T) {
	a := New(Options{AccessKey: testKey, SecretKey: testSecret})
	do := func(values url.Values) answerOf { return send(t, a, time.Now(), testSecret, values) }
	first := do(run("token"))
	if again := do(run("token")); first.Instance == "" || again.Instance != first.Instance {
		t.Errorf("the same call returns %q and then %q", first.Instance, again.Instance)
	}
	if got := do(run("token", "KeyName", "operator")); got.Code != "IdempotentParameterMismatch" {
		t.Errorf("another call with the token: %+v", got)
	}
	do(form("TerminateInstances", "InstanceId.1", first.Instance))
	if again := do(run("token")); again.Instance != first.Instance || a.State(first.Instance) != terminated {
		t.Errorf("the token of a terminated instance returns %+v", again)
	}
}

func TestReadsLagInBothDirections(t *testing.T) {
	now := time.Now()
	a := New(Options{AccessKey: testKey, SecretKey: testSecret, BootDuration: time.Second,
		Now: func() time.Time { return now }})
	do := func(values url.Values) answerOf { return send(t, a, now, testSecret, values) }
	a.Adjust(func(o *Options) { o.Semantics.ReadLag, o.Semantics.ListLag = time.Minute, 2*time.Minute })
	id := do(run("token")).Instance
	byID := form("DescribeInstances", "InstanceId.1", id)
	if got := do(byID); got.Code != "InvalidInstanceID.NotFound" {
		t.Errorf("a new instance is shown: %+v", got)
	}
	now = now.Add(90 * time.Second)
	if got := do(byID); len(got.States) != 1 || got.States[0] != running {
		t.Errorf("after the lag of reads: %+v", got)
	}
	if got := do(form("DescribeInstances")); len(got.Listed) != 0 {
		t.Errorf("before the lag of lists: %+v", got)
	}
	do(form("TerminateInstances", "InstanceId.1", id))
	now = now.Add(50 * time.Second)
	if got := do(byID); len(got.States) != 1 || got.States[0] != running {
		t.Errorf("the termination is shown too early: %+v", got)
	}
	now = now.Add(20 * time.Second)
	if got := do(byID); len(got.States) != 1 || got.States[0] != terminated {
		t.Errorf("the terminated instance is not listed: %+v", got)
	}
	now = now.Add(2 * time.Hour)
	if got := do(byID); got.Code != "InvalidInstanceID.NotFound" {
		t.Errorf("the instance is listed for more than an hour: %+v", got)
	}
}

func TestPagesContainEachInstanceOnce(t *testing.T) {
	a := New(Options{AccessKey: testKey, SecretKey: testSecret, PageSize: 5})
	want := map[string]bool{}
	for range 12 {
		id, _ := a.Launch(nil)
		want[id] = true
	}
	token, pages := "", 0
	for {
		values := form("DescribeInstances", "MaxResults", "1000")
		if token != "" {
			values.Set("NextToken", token)
		}
		got := send(t, a, time.Now(), testSecret, values)
		pages++
		for _, id := range got.Listed {
			if !want[id] {
				t.Errorf("page %d contains %s again", pages, id)
			}
			delete(want, id)
		}
		if token = got.NextToken; token == "" {
			break
		}
	}
	if pages != 3 || len(want) > 0 {
		t.Errorf("after %d pages, %d instances are missing", pages, len(want))
	}
}
