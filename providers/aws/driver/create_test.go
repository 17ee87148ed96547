package driver_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/fakeaws"
	"machinist.dev/machinist/providers/aws/machine/sample"
)

// An instance that EC2 accepts and then terminates before it runs is not found. The error says why the creation
// failed.
func TestLaunchFailureIsReportedWithTheCreateHandle(t *testing.T) {
	const key = "alias/locked"
	for reason, want := range map[string]struct {
		code provider.Code
		text string
	}{
		"Server.InsufficientInstanceCapacity": {provider.ResourceExhausted, "no capacity"},
		"Client.VolumeLimitExceeded":          {provider.ResourceExhausted, "quota of EBS volumes"},
		"Client.InternalError":                {provider.FailedPrecondition, "KMS key"},
		"Server.InternalError":                {provider.Unavailable, "internal error"},
		"a locked key":                        {provider.FailedPrecondition, "KMS key"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, func(o *fakeaws.Options) {
				o.BootDuration, o.LockedKeys = 10*time.Millisecond, []string{key}
				if reason != "a locked key" {
					o.Semantics.GivesUp = reason
				}
			})
			d, class := c.driver(), class("rootVolume.kmsKeyID", key)
			in := c.launchOne(d, "a", class)
			if in.State != provider.StatePending || in.CreateHandle != idOf(in) {
				t.Fatalf("Create returns the state %s and the handle %q", in.State, in.CreateHandle)
			}
			get := getRequest("a", class, in)
			var err error
			c.eventually("the launch fails", func() (bool, string) {
				_, err = c.driver().Get(t.Context(), get)
				return provider.IsNotFound(err), fmt.Sprint(err)
			})
			if code := provider.CreateCodeOf(err); code != want.code || !strings.Contains(err.Error(), want.text) {
				t.Errorf("the error has the create code %q: %v", code, err)
			}
			get.CreateHandle = ""
			if _, err := d.Get(t.Context(), get); !provider.IsNotFound(err) || provider.CreateCodeOf(err) != "" {
				t.Errorf("Get without the handle: %v", err)
			}
			// EC2 answers the same token with the terminated instance.
			_, err = d.Create(t.Context(), request("a", class))
			c.wantCode(err, provider.AlreadyExists)
			c.Adjust(func(o *fakeaws.Options) { o.Semantics.GivesUp, o.LockedKeys = "", nil })
			next := request("a", class)
			next.Token = "uid-of-a-2"
			second, err := d.Create(t.Context(), next)
			c.must(err)
			if second.ProviderID == in.ProviderID {
				t.Error("the next attempt returns the terminated instance")
			}
		})
	}
}

func TestTokenWithOtherParametersIsAlreadyExists(t *testing.T) {
	c := newCloud(t, func(o *fakeaws.Options) { o.Semantics.ListLag = time.Hour }) // Searches by tags find nothing.
	d := c.driver()
	in := c.launchOne(d, "a", class())
	_, err := d.Create(t.Context(), request("a", class("instanceType", "m6i.xlarge")))
	c.wantCode(err, provider.AlreadyExists)
	again, err := d.Create(t.Context(), request("a", class()))
	c.must(err)
	if again.ProviderID != in.ProviderID || c.count("instance") != 1 {
		t.Errorf("a repeated Create returns %s instead of %s", again.ProviderID, in.ProviderID)
	}
}

// An instance of an earlier attempt is returned, unless EC2 only still shows it.
func TestInstanceOfAnEarlierAttempt(t *testing.T) {
	now := time.Now()
	c := newCloud(t, func(o *fakeaws.Options) {
		o.BootDuration, o.Now = time.Minute, func() time.Time { return now }
	})
	d := c.driver()
	in := c.launchOne(d, "a", class())
	next := request("a", class())
	next.Token = "uid-of-a-2"
	_, err := d.Create(t.Context(), next)
	c.wantCode(err, provider.Aborted)
	now = now.Add(2 * time.Minute)
	found, err := d.Create(t.Context(), next)
	c.must(err)
	if found.ProviderID != in.ProviderID {
		t.Errorf("Create returns %s instead of %s", found.ProviderID, in.ProviderID)
	}
	c.Terminate(idOf(in))
	c.Adjust(func(o *fakeaws.Options) { o.Semantics.ListLag = 90 * time.Second }) // Searches still show the instance.
	now = now.Add(time.Minute)
	second, err := d.Create(t.Context(), next)
	c.must(err)
	if second.ProviderID == in.ProviderID {
		t.Error("Create returns an instance that is gone")
	}
}

func TestTagsAreOnTheInstanceAndItsParts(t *testing.T) {
	c := newCloud(t, nil)
	in := c.launchOne(c.driver(), "a", class())
	all := c.PartTags(idOf(in))
	if len(all) != 3 {
		t.Fatalf("the instance has the parts %v", all)
	}
	all[idOf(in)] = c.Tags(idOf(in))
	for id, tags := range all {
		for key, want := range map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: "uid-of-a",
			provider.TagMachine: "default/a", "team": "blue", "Name": "a"} {
			if tags[key] != want {
				t.Errorf("%s has the tag %s=%q, want %q", id, key, tags[key], want)
			}
		}
	}
	if data := c.UserData(idOf(in)); data != "#cloud-config\n" {
		t.Errorf("the user data is %q", data)
	}
}

func TestNodeNameIsThatOfTheCloudController(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	byIP := c.launchOne(d, "a", class())
	byID := c.launchOne(d, "b", class("hostnameType", "resource-name"))
	if !strings.HasPrefix(byIP.NodeName, "ip-10-20-") || !strings.HasSuffix(byIP.NodeName,
		".eu-west-1.compute.internal") {
		t.Errorf("with ip-name, the name of the Node is %q", byIP.NodeName)
	}
	if byID.NodeName != idOf(byID) {
		t.Errorf("with resource-name, the name of the Node is %q, want %q", byID.NodeName, idOf(byID))
	}
	if want := "aws:///eu-west-1a/" + idOf(byID); byID.ProviderID != want {
		t.Errorf("the provider ID is %q, want %q", byID.ProviderID, want)
	}
}

// What the class alone does not show becomes one clear error with its field.
func TestBadInputHasItsField(t *testing.T) {
	group := func(id string) []any { return []any{map[string]any{"id": id}} }
	subnet := func(id string) map[string]any { return map[string]any{"id": id} }
	interfaces := func(n int) (all []any) {
		for range n {
			all = append(all, map[string]any{"subnet": subnet(sample.Subnet)})
		}
		return all
	}
	c := newCloud(t, nil)
	d := c.driver()
	for _, test := range []struct {
		name, field string
		changes     []any
	}{
		{"an unknown image", "imageID", []any{"imageID", "ami-0f000000000000001"}},
		{"an image of another architecture", "imageID", []any{"imageID", "ami-0a000000000000003"}},
		{"an unknown instance type", "instanceType", []any{"instanceType", "m99.large"}},
		{"an instance type that the zone does not offer", "instanceType", []any{"instanceType", "g5.xlarge",
			"subnet", subnet("subnet-0a000000000000002")}},
		{"a subnet of another region", "subnet", []any{"subnet", subnet("subnet-0f000000000000001")}},
		{"tags of two subnets", "subnet", []any{"subnet", map[string]any{"tags": map[string]any{"role": "nodes"}}}},
		{"tags of no subnet", "subnet", []any{"subnet", map[string]any{"tags": map[string]any{"role": "none"}}}},
		{"tags of no group", "securityGroups[0]",
			[]any{"securityGroups", []any{map[string]any{"tags": map[string]any{"role": "none"}}}}},
		{"an unknown group", "securityGroups", []any{"securityGroups", group("sg-0f000000000000001")}},
		{"a group of another VPC", "securityGroups", []any{"securityGroups", group("sg-0b000000000000001")}},
		{"more interfaces than the type has", "networkInterfaces", []any{"networkInterfaces", interfaces(3)}},
		{"an unknown key pair", "keyName", []any{"keyName", "nobody"}},
		{"an unknown profile", "iamInstanceProfile", []any{"iamInstanceProfile", "nobody"}},
		{"an unknown placement group", "placement.groupName", []any{"placement.groupName", "nowhere"}},
		{"the root device as a data volume", "dataVolumes[0].deviceName", []any{"imageID", "ami-0a000000000000003",
			"instanceType", "m6g.large", "dataVolumes", []any{map[string]any{"deviceName": "/dev/sda1", "sizeGiB": 1}}}},
	} {
		_, err := d.Create(t.Context(), request("a", class(test.changes...)))
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Field != test.field || e.Code != provider.FailedPrecondition && e.Code != provider.InvalidArgument {
			t.Errorf("%s: got %v, want an error about the field %s", test.name, err, test.field)
		}
	}
	large := request("a", class())
	large.UserData = provider.NewSecret(make([]byte, 16<<10+1))
	_, err := d.Create(t.Context(), large)
	c.wantCode(err, provider.InvalidArgument)
	if err == nil || !strings.Contains(err.Error(), "compressUserData") {
		t.Errorf("the error about large user data offers no compression: %v", err)
	}
	c.nothingLeft()
	large.Class = class("compressUserData", true)
	in, err := d.Create(t.Context(), large)
	c.must(err)
	if data := c.UserData(idOf(in)); len(data) > 1000 || !strings.HasPrefix(data, "\x1f\x8b") {
		t.Errorf("the user data has %d bytes and is not compressed", len(data))
	}
}

func TestMissingPermissionIsNamed(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	for message, want := range map[string]string{
		"User: arn:aws:iam::1:user/x is not authorized to perform: ec2:CreateTags on resource: arn:x. Encoded " +
			"authorization failure message: c2VjcmV0": "ec2:CreateTags",
		"Encoded authorization failure message: c2VjcmV0": "ec2:RunInstances",
	} {
		end := c.Inject(fakeaws.Fault{Action: "RunInstances", Status: http.StatusForbidden, Code: "UnauthorizedOperation",
			Message: message})
		_, err := d.Create(t.Context(), request("a", class()))
		end()
		c.wantCode(err, provider.PermissionDenied)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("the error is %v; want the action %s and no text of AWS", err, want)
		}
	}
}

func TestImageOfAnotherAccountIsNamed(t *testing.T) {
	c := newCloud(t, nil)
	c.Inject(fakeaws.Fault{Action: "DescribeImages", Status: http.StatusUnauthorized, Code: "AuthFailure",
		Message: "Not authorized for images: [ami-0a000000000000001]"})
	_, err := c.driver().Create(t.Context(), request("a", class()))
	c.wantCode(err, provider.FailedPrecondition)
}

// The SDK corrects the clock with the date of an answer, and repeats a request that was refused because of its date.
func TestWrongClockIsCorrected(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		c := newCloud(t, func(o *fakeaws.Options) { o.Semantics.ClockSkew = skew })
		c.launchOne(c.driver(), "a", class())
	}
}
