package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

// broken is a driver with some of its methods replaced.
type broken struct {
	*correct
	name     string
	settle   time.Duration
	validate func(context.Context, provider.ValidateRequest) error
	capacity func(context.Context, provider.CapacityRequest) (provider.Capacity, error)
	create   func(context.Context, provider.CreateRequest) (*provider.Instance, error)
	get      func(context.Context, provider.GetRequest) (*provider.Instance, error)
	list     func(context.Context, provider.ListRequest) (provider.ListPage, error)
	delete   func(context.Context, provider.DeleteRequest) (provider.DeleteResult, error)
	update   func(context.Context, provider.UpdateRequest) (provider.UpdateResult, error)
	adopt    func(context.Context, provider.AdoptRequest) (*provider.Instance, error)
}

func (b *broken) Name() string { return b.name }

// CreateSettle is as short as the flaws that are about it: what has not shown by then will not.
func (b *broken) CreateSettle() time.Duration { return b.settle }

func (b *broken) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return b.validate(ctx, req)
}

func (b *broken) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return b.capacity(ctx, req)
}

func (b *broken) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	return b.create(ctx, req)
}

func (b *broken) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	return b.get(ctx, req)
}

func (b *broken) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	return b.list(ctx, req)
}

func (b *broken) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	return b.delete(ctx, req)
}

func (b *broken) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	return b.update(ctx, req)
}

func (b *broken) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	return b.adopt(ctx, req)
}

// whole is a broken driver without a flaw.
func whole(c *fakeCloud) *broken {
	d := newCorrect(c)
	return &broken{
		correct: d, name: d.Name(), settle: 20 * time.Millisecond,
		validate: d.Validate, capacity: d.Capacity, create: d.Create, get: d.Get, list: d.List, delete: d.Delete, update: d.Update, adopt: d.Adopt,
	}
}

// flaw is a way in which a driver breaks the contract.
type flaw struct {
	// of is the case that must find it.
	of   string
	name string
	// says is part of what the case must report.
	says string
	with func(b *broken)
	// after are cases that run before.
	after []string
	// cloud changes the cloud, where the flaw shows only so.
	cloud func(*fakeCloud)
}

// withoutIdempotency makes every Create a new instance.
func withoutIdempotency(b *broken) {
	b.looksFirst = false
	b.idempotency = func(provider.CreateRequest) string { return random(8) }
}

// code replaces one code by another.
func code(b *broken, from, to provider.Code) {
	before := b.translate
	b.translate = func(err error) error {
		out := before(err)
		if e, ok := errors.AsType[*provider.Error](out); ok && e.Code == from {
			e.Code = to
		}
		return out
	}
}

// meeting holds the first caller until there is a second, or until it is clear that none comes. Later ones pass.
func meeting() func() {
	var callers atomic.Int32
	second := make(chan struct{})
	return func() {
		switch callers.Add(1) {
		case 1:
			patience := time.NewTimer(10 * time.Second)
			defer patience.Stop()
			select {
			case <-second:
			case <-patience.C:
			}
		case 2:
			close(second)
		}
	}
}

func flaws() []flaw {
	return []flaw{
		{of: "NameAndTimes", name: "a name that is no label", says: "is not a DNS label", with: func(b *broken) { b.name = "My_Cloud" }},
		{of: "NameAndTimes", name: "no time to settle", says: "CreateSettle 0s is not positive", with: func(b *broken) { b.settle = 0 }},
		{of: "ValidateAcceptsWhatWorks", name: "asks the cloud", says: "with rejected credentials", with: validatesAtTheCloud},
		{of: "InvalidSpecsAreRefusedByField", name: "does not say which field", says: `about field "", want "size"`, with: func(b *broken) {
			decode := b.decode
			b.decode = func(raw []byte) (machineSpec, error) {
				spec, err := decode(raw)
				if e, ok := errors.AsType[*provider.Error](err); ok {
					e.Field = ""
				}
				return spec, err
			}
		}},
		{of: "InvalidSpecsAreRefusedByField", name: "only Validate looks", says: "Create of an invalid providerSpec", with: func(b *broken) {
			validating := *b.correct
			b.validate = validating.Validate
			b.decode = func([]byte) (machineSpec, error) { return machineSpec{Size: "small"}, nil }
		}},
		{of: "SpecIsDecodedStrictly", name: "passes over unknown fields", says: "(an unknown field)", with: func(b *broken) {
			b.decode = func(raw []byte) (machineSpec, error) { return decodeLeniently(raw) }
		}},
		{of: "CredentialsAreDecodedStrictly", name: "Validate does not look at them", says: "Validate with MalformedCredentials[0]", with: func(b *broken) {
			b.validate = func(ctx context.Context, req provider.ValidateRequest) error {
				req.Class.Credentials = provider.Credentials{}
				return b.correct.Validate(ctx, req)
			}
		}},
		{of: "CredentialsNameNoSources", name: "reads files", says: "it follows it", with: follows(func(value string) (string, bool) {
			path, isFile := strings.CutPrefix(value, "file://")
			content, err := os.ReadFile(path)
			return string(content), isFile && err == nil
		})},
		{of: "CredentialsNameNoSources", name: "fetches URLs", says: "fetched a URL", with: follows(func(value string) (string, bool) {
			resp, err := http.Get(value)
			if err != nil {
				return "", false
			}
			defer resp.Body.Close()
			content, err := io.ReadAll(resp.Body)
			return string(content), err == nil
		})},
		{of: "CredentialsNameNoSources", name: "runs commands", says: "ran a command", with: follows(func(value string) (string, bool) {
			command, isCommand := strings.CutPrefix(value, "|")
			out, err := exec.Command("sh", "-c", command).Output()
			return string(out), isCommand && err == nil
		})},
		{of: "CredentialsNameNoSources", name: "takes a file beside", says: "instead of token", with: func(b *broken) {
			b.tokenOf = func(c provider.Credentials) (string, error) {
				if path, found := c.Get("tokenFile"); found {
					content, err := os.ReadFile(string(path.Reveal()))
					return string(content), err
				}
				return tokenOf(c)
			}
		}},
		{of: "RejectedCredentials", name: "who may not look finds nothing", says: "Get by tags with RejectedCredentials", with: func(b *broken) {
			code(b, provider.Unauthenticated, provider.NotFound)
		}},
		{of: "CapacityIsPlausible", name: "less than nothing", says: `resource "cpu" is -2`, with: func(b *broken) {
			b.capacity = func(context.Context, provider.CapacityRequest) (provider.Capacity, error) {
				return provider.Capacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("-2")}}, nil
			}
		}},

		{of: "CreateMakesAnInstance", name: "never runs", says: "it is in state Pending", with: converting(func(in *provider.Instance) { in.State = provider.StatePending })},
		{of: "CreateMakesAnInstance", name: "an invented state", says: `State "Booting" does not exist`, with: converting(func(in *provider.Instance) { in.State = "Booting" })},
		{of: "CreateMakesAnInstance", name: "a provider ID that is no URL", says: "is not a URL", with: converting(func(in *provider.Instance) { in.ProviderID = "i-1" })},
		{of: "CreateMakesAnInstance", name: "a node's name that cannot be one", says: "is not a DNS subdomain", with: converting(func(in *provider.Instance) { in.NodeName = "Worker_1" })},
		{of: "CreateMakesAnInstance", name: "an empty address", says: "without type or value", with: converting(func(in *provider.Instance) { in.Addresses = make([]corev1.NodeAddress, 1) })},
		{of: "CreateMakesAnInstance", name: "a long type", says: "Type is 300 bytes long", with: converting(func(in *provider.Instance) { in.Type = strings.Repeat("x", 300) })},
		{of: "CreateMakesAnInstance", name: "neither instance nor error", says: "returns neither", with: func(b *broken) {
			b.get = func(context.Context, provider.GetRequest) (*provider.Instance, error) { return nil, nil }
		}},
		{of: "CreateMakesAnInstance", name: "panics", says: "Create panicked: no such thing", with: func(b *broken) {
			b.create = func(context.Context, provider.CreateRequest) (*provider.Instance, error) { panic("no such thing") }
		}},
		{of: "CreateMakesAnInstance", name: "an invented code", says: `the code "Busy", which does not exist`, with: func(b *broken) {
			b.create = func(context.Context, provider.CreateRequest) (*provider.Instance, error) {
				return nil, provider.Errorf("Busy", "come back later")
			}
		}},
		{of: "CreateTwiceIsOne", name: "makes one each time", says: "Create again at once returns", with: withoutIdempotency},
		{of: "CreateAtOnceIsOne", name: "looks and then makes", says: "at the same time with the same token returns", with: func(b *broken) {
			looked := meeting()
			b.idempotency = func(provider.CreateRequest) string { looked(); return random(8) }
		}},
		{of: "CreateAtOnceIsOne", name: "fails for good beside others", says: "want an error with code Aborted", with: func(b *broken) {
			var busy sync.Mutex
			both := meeting()
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				if !busy.TryLock() {
					both()
					return nil, provider.Errorf(provider.InvalidArgument, "another call is under way")
				}
				defer busy.Unlock()
				both()
				return b.correct.Create(ctx, req)
			}
		}},
		{of: "CreateAfterRestartIsOne", name: "remembers in the process only", says: "after a restart returns", with: func(b *broken) {
			process := random(8)
			b.looksFirst = false
			b.idempotency = func(req provider.CreateRequest) string { return process + req.Token }
		}},
		{of: "CreateWithOtherParameters", name: "other parameters are another instance", says: "with a used token and other", with: func(b *broken) {
			b.looksFirst = false
			b.idempotency = func(req provider.CreateRequest) string {
				return fmt.Sprintf("%s %s %s", req.Token, req.Class.Spec, req.UserData.Reveal())
			}
		}},
		{of: "CreateWithOtherParameters", name: "says that it is invalid", says: "want an error with code AlreadyExists", with: func(b *broken) {
			b.looksFirst = false
			code(b, provider.AlreadyExists, provider.InvalidArgument)
		}},
		{of: "LaterAttemptTakesOver", name: "goes by the token alone", says: "of a second attempt returns", with: func(b *broken) { b.looksFirst = false }},
		{of: "SpentToken", name: "returns what was there", says: "returns one in state Terminating", with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				in, err := b.correct.Create(ctx, req)
				if provider.CodeOf(err) == provider.AlreadyExists {
					return b.describe(server{id: "i-1", tags: req.Tags, deletions: 1}), nil
				}
				return in, err
			}
		}},

		{of: "TagsAreThere", name: "leaves the name out", says: `MachineKey ""`, with: func(b *broken) {
			b.tags = func(req provider.CreateRequest) map[string]string { return ownerTags(req.ClusterID, req.Machine) }
		}},
		{of: "TagsAreThere", name: "List does not tell", says: `List: the instance has ClusterID ""`, with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				for i := range page.Instances {
					page.Instances[i].ClusterID = ""
				}
				return page, err
			}
		}},
		{of: "ProviderIDs", name: "all end in the same", says: "end in the same segment", with: converting(func(in *provider.Instance) { in.ProviderID += "/server" })},
		{of: "ProviderIDs", name: "the ID changes", says: "/running\" when the instance runs", with: converting(func(in *provider.Instance) {
			if in.State == provider.StateRunning {
				in.ProviderID += "/running"
			}
		})},
		{of: "ScopeIsEnough", name: "needs the class", says: "without Class.Spec", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				if _, err := b.decode(req.Class.Spec); err != nil {
					return nil, err
				}
				return b.correct.Get(ctx, req)
			}
		}},
		{of: "ScopeIsEnough", name: "needs a long one", says: "Scope is 2000 bytes long", with: converting(func(in *provider.Instance) { in.Scope = strings.Repeat("x", 2000) })},
		{of: "GetAndListAgree", name: "List leaves something out", says: "Get and List disagree", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				for i := range page.Instances {
					page.Instances[i].Scope = ""
				}
				return page, err
			}
		}},
		{of: "NotFound", name: "an error without a code", says: "want an error with code NotFound", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				in, err := b.correct.Get(ctx, req)
				if provider.IsNotFound(err) {
					return nil, errors.New("no such server")
				}
				return in, err
			}
		}},
		{of: "NotFound", name: "finds in any cluster", says: "Get by tags of another cluster", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				req.ClusterID = strings.TrimSuffix(req.ClusterID, "-other")
				return b.correct.Get(ctx, req)
			}
		}},
		{of: "ListGoesThroughAllPages", name: "the first page is all", says: "List does not", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				page.Continue = ""
				return page, err
			}
		}},
		{of: "ListGoesThroughAllPages", name: "pages overlap", says: "2 times", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				if req.Continue == "2" {
					first, _ := b.correct.List(ctx, provider.ListRequest{Class: req.Class, ClusterID: req.ClusterID})
					page.Instances = append(page.Instances, first.Instances...)
				}
				return page, err
			}
		}},
		{of: "ListGoesThroughAllPages", name: "never ends", says: "it never ends", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				if page.Continue == "" && req.Continue != "" {
					page.Continue = req.Continue
				}
				return page, err
			}
		}},
		{of: "ListIsOfOneCluster", name: "lists everybody's", says: "which is not its own", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
				all, _, err := b.cloud.listServers(ctx, b.cloud.account, nil, 0, 100)
				for _, s := range all {
					page.Instances = append(page.Instances, *b.convert(s))
				}
				return page, err
			}
		}},

		{of: "DeleteIsIdempotent", name: "what is gone is an error", says: "NotFound", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				before, _, _ := b.cloud.listServers(ctx, b.cloud.account, ownerTags(req.ClusterID, req.Machine), 0, 1)
				result, err := b.correct.Delete(ctx, req)
				if result.Gone && len(before) == 0 {
					return provider.DeleteResult{}, provider.Errorf(provider.NotFound, "it is not there")
				}
				return result, err
			}
		}},
		{of: "DeleteByTags", name: "knows provider IDs only", says: "still shows", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if req.ProviderID == "" {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "DeleteByTags", name: "deletes the whole cluster", says: "it must not be touched", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				all, _, _ := b.cloud.listServers(ctx, b.cloud.account, map[string]string{provider.TagCluster: req.ClusterID}, 0, 100)
				for _, s := range all {
					_ = b.cloud.deleteServer(ctx, b.cloud.account, s.id, nil)
				}
				return provider.DeleteResult{Gone: len(all) == 0}, nil
			}
		}},
		{of: "DeleteAtOnce", name: "waits until it has booted", says: "FailedPrecondition", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				id, _ := idOf(req.ProviderID)
				if s, err := b.cloud.getServer(ctx, b.cloud.account, id); err == nil && b.describe(s).State == provider.StatePending {
					return provider.DeleteResult{}, provider.Errorf(provider.FailedPrecondition, "it has not booted")
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "DeleteAtOnce", name: "believes a read that lags", says: "leaves", cloud: func(c *fakeCloud) { c.lag = 5 }, with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if _, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID}); req.ProviderID != "" && provider.IsNotFound(err) {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "DeleteDuringCreate", name: "gives up for good", says: "want an error that is retried", with: givesUpWhenDeletedMeanwhile},
		{of: "DeleteLeavesNothing", name: "forgets the network interface", says: "leaves [nic/", with: forgetsNICs},
		{of: "DeleteLeavesNothing", name: "is content with having asked", says: "leaves [disk/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				return provider.DeleteResult{Gone: err == nil || result.Gone}, err
			}
		}},
		{of: "DeleteRefusesOthers", name: "does not look at the tags", says: "Delete by another machine", with: func(b *broken) {
			b.mine = func(string, provider.Machine) map[string]string { return nil }
		}},
		{of: "DeleteRefusesOthers", name: "without a UID anybody will do", says: "after Delete with neither provider ID nor UID", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if req.Machine.UID == "" {
					return provider.DeleteResult{}, b.cloud.deleteServer(ctx, b.cloud.account, "i-1", nil)
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "UntaggedIsLeftAlone", name: "refuses only what is tagged otherwise", says: "Delete of an instance with no tags", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				id, _ := idOf(req.ProviderID)
				_ = b.cloud.change(ctx, b.cloud.account, id, func(s *server) {
					tags := ownerTags(req.ClusterID, req.Machine)
					maps.Copy(tags, s.tags)
					s.tags = tags
				})
				return b.correct.Delete(ctx, req)
			}
		}},

		{of: "UpdateToTheSame", name: "refuses", says: "answers Refused, want Done", with: updating(provider.UpdateResult{Outcome: provider.UpdateRefused, Reason: "never"})},
		{of: "UpdateToTheSame", name: "gives no reason", says: "NeedsReplacement without a reason", with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement})},
		{of: "UpdateToTheSame", name: "an invented outcome", says: `outcome "Perhaps", which does not exist`, with: updating(provider.UpdateResult{Outcome: "Perhaps"})},
		{of: "UpdateToAnother", name: "never ends", says: "it is in progress", with: updating(provider.UpdateResult{Outcome: provider.UpdateInProgress})},
		{of: "UpdateToAnother", name: "never drained enough", says: "asks for the drain that was made", with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsDrain})},
		{of: "UpdateToAnother", name: "says done and does not do it", says: "when it is asked again: it answers NeedsDrain", with: func(b *broken) {
			b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
				if req.Drained {
					return provider.UpdateResult{Outcome: provider.UpdateDone}, nil
				}
				return b.correct.Update(ctx, req)
			}
		}},
		{of: "UpdateRefusesOthers", name: "does not look at the tags", says: "Update by", with: func(b *broken) {
			b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
				_, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				return provider.UpdateResult{Outcome: provider.UpdateDone}, err
			}
		}},
		{of: "AdoptTags", name: "only looks", says: `Adopt: the instance has ClusterID ""`, with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
			}
		}},
		{of: "AdoptRefusesOthers", name: "takes what it likes", says: "Adopt by", with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				id, _ := idOf(req.ProviderID)
				err := b.cloud.change(ctx, b.cloud.account, id, func(s *server) { s.tags = req.Tags })
				if err != nil {
					return nil, err
				}
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
			}
		}},

		{of: "ManyAtOnce", name: "answers one with another's", says: "Create beside others", with: func(b *broken) {
			var mu sync.Mutex
			var last provider.Machine
			together := meeting()
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				mu.Lock()
				last = req.Machine
				mu.Unlock()
				together()
				mu.Lock()
				req.Machine = last // as if it had been kept in a field
				mu.Unlock()
				req.Token, req.Tags = string(req.Machine.UID)+"-1", (&subject{Machine: req.Machine, cluster: req.ClusterID}).tags()
				return b.correct.Create(ctx, req)
			}
		}},
		{of: "EndedContext", name: "does not look at it", says: "whose context was cancelled before", with: withoutContext},
		{of: "SecretsStaySecret", name: "passes on what the cloud says", says: "contains the value of the credentials' key token", with: func(b *broken) {
			before := b.translate
			b.translate = func(err error) error { return provider.Errorf(provider.CodeOf(before(err)), "the cloud says: %w", err) }
		}},
		{of: "SecretsStaySecret", name: "says what the user data is", says: "contains the user data", with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				in, err := b.correct.Create(ctx, req)
				if err != nil {
					return nil, provider.Errorf(provider.CodeOf(err), "user data %s is not taken", req.UserData.Reveal())
				}
				return in, nil
			}
		}},
		{of: "SecretsStaySecret", name: "keeps the credentials in the scope", says: "Create's answer contains the value of the credentials' key token", with: converting(func(in *provider.Instance) { in.Scope = "token=" + newFakeCloud().account })},
		{of: "ReadsChangeNothing", name: "List tidies up", says: "after reading there are", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				_ = b.cloud.putNIC(ctx, b.cloud.account, "probe-"+random(4), nil)
				return b.correct.List(ctx, req)
			}
		}},

		{of: "LostCreateIsOne", name: "starts over", says: "which Create returned", with: withoutIdempotency},
		{of: "LostCreateIsOne", name: "claims that nothing happened", says: "says that it had no effect", with: func(b *broken) {
			code(b, provider.Unavailable, provider.Throttled)
		}},
		{of: "CreateSettleIsHonest", name: "settles later than it says", says: "finds the instance within CreateSettle", cloud: func(c *fakeCloud) { c.lag = 50 }, with: func(b *broken) { b.settle = time.Nanosecond }},
		{of: "CreateSettleIsHonest", name: "tags in a second call", says: "finds the instance within CreateSettle", with: tagsLater},
		{of: "LostCreateIsDeleted", name: "tags in a second call", says: "finds the instance within CreateSettle", with: tagsLater},
		{of: "LostCreateIsDeleted", name: "forgets the network interface", says: "leaves [nic/", with: forgetsNICs},
		{of: "CutCreate", name: "leaves what has no server", says: "nothing is left when Delete by tags", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if _, err := b.correct.Get(ctx, provider.GetRequest(req)); provider.IsNotFound(err) {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "UnavailableCloud", name: "who cannot look finds nothing", says: "Get by tags while the fault Unavailable lasts: NotFound", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				in, err := b.correct.Get(ctx, req)
				if err != nil {
					return nil, provider.Errorf(provider.NotFound, "it is not there")
				}
				return in, nil
			}
		}},
		{of: "UnavailableCloud", name: "whom it cannot ask it believes to be gone", says: "Delete by tags succeeds while the fault Unavailable", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				return provider.DeleteResult{Gone: result.Gone || err != nil}, nil
			}
		}},
		{of: "UnavailableCloud", name: "an empty list", says: "List succeeds while the fault Unavailable", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, _ := b.correct.List(ctx, req)
				return page, nil
			}
		}},
		{of: "ThrottlingCloud", name: "loses how long to wait", says: "RetryAfter is 0s", with: func(b *broken) {
			before := b.translate
			b.translate = func(err error) error {
				out := before(err)
				if e, ok := errors.AsType[*provider.Error](out); ok {
					e.RetryAfter = 0
				}
				return out
			}
		}},
		{of: "ExhaustedCloud", name: "takes it for a failure of the cloud", says: "want an error with code ResourceExhausted", with: func(b *broken) { code(b, provider.ResourceExhausted, provider.Unavailable) }},
		{of: "ExhaustedCloud", name: "forgets the network interface", says: "left [nic/", with: forgetsNICs},
		{of: "CloudRefusesCredentials", name: "takes it for a failure of the cloud", says: "want an error with code Unauthenticated", with: func(b *broken) { code(b, provider.Unauthenticated, provider.Internal) }},
		{of: "CloudForbids", name: "takes it for a mistake", says: "want an error with code PermissionDenied", with: func(b *broken) { code(b, provider.PermissionDenied, provider.FailedPrecondition) }},
		{of: "HangingCloud", name: "waits for ever", says: "does not return within", with: withoutContext},
		{of: "ValidateAsksNobody", name: "asks the cloud", says: "while the cloud does not answer", with: validatesAtTheCloud},
		{of: "NothingIsLeft", name: "makes something that it does not know of", says: "nic/log-of-", after: []string{"CreateMakesAnInstance"}, with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				_ = b.cloud.putNIC(ctx, b.cloud.account, "log-of-"+req.Machine.Name, nil)
				return b.correct.Create(ctx, req)
			}
		}},
	}
}

func decodeLeniently(raw []byte) (machineSpec, error) {
	if !strings.HasPrefix(string(raw), "{") || !strings.Contains(string(raw), `"size":`) {
		return decodeMachine(raw)
	}
	return machineSpec{Size: "small"}, nil
}

// converting changes what is told of an instance.
func converting(change func(*provider.Instance)) func(*broken) {
	return func(b *broken) {
		b.convert = func(s server) *provider.Instance {
			in := b.describe(s)
			change(in)
			return in
		}
	}
}

// updating answers every Update alike.
func updating(result provider.UpdateResult) func(*broken) {
	return func(b *broken) {
		b.update = func(context.Context, provider.UpdateRequest) (provider.UpdateResult, error) { return result, nil }
	}
}

// follows takes the token for the name of what has it.
func follows(resolve func(value string) (string, bool)) func(*broken) {
	return func(b *broken) {
		b.tokenOf = func(c provider.Credentials) (string, error) {
			value, _ := c.Get("token")
			if resolved, ok := resolve(string(value.Reveal())); ok {
				return resolved, nil
			}
			return tokenOf(c)
		}
	}
}

func validatesAtTheCloud(b *broken) {
	b.validate = func(ctx context.Context, req provider.ValidateRequest) error {
		if err := b.correct.Validate(ctx, req); err != nil || req.Class.Credentials.Empty() {
			return err
		}
		_, err := b.correct.List(ctx, provider.ListRequest{Class: req.Class, ClusterID: "any"})
		return err
	}
}

func forgetsNICs(b *broken) {
	b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
		nicOf := b.nicOf
		unknowing := *b.correct
		unknowing.nicOf = func(m provider.Machine) string { return "none-" + nicOf(m) }
		return unknowing.Delete(ctx, req)
	}
}

// tagsLater leaves a server without tags for as long as the driver's second call takes, or for ever.
func tagsLater(b *broken) {
	var owner provider.CreateRequest
	b.tags = func(req provider.CreateRequest) map[string]string { owner = req; return nil }
	b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
		in, err := b.correct.Create(ctx, req)
		if err != nil {
			return nil, err
		}
		id, _ := idOf(in.ProviderID)
		if err := b.cloud.change(ctx, b.cloud.account, id, func(s *server) { s.tags = owner.Tags }); err != nil {
			return nil, b.translate(err)
		}
		return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: in.ProviderID})
	}
}

// givesUpWhenDeletedMeanwhile takes it for a mistake of the user's that somebody took the network interface away.
func givesUpWhenDeletedMeanwhile(b *broken) {
	code(b, provider.Aborted, provider.FailedPrecondition)
	b.idempotency = func(req provider.CreateRequest) string {
		// The network interface is there and the server is not.
		_ = b.cloud.deleteNIC(context.Background(), b.cloud.account, b.nicOf(req.Machine), nil)
		return req.Token
	}
}

func withoutContext(b *broken) {
	b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
		return b.correct.Get(context.WithoutCancel(ctx), req)
	}
}

func TestEveryCaseFindsItsFlaw(t *testing.T) {
	found := map[string]bool{}
	for _, f := range flaws() {
		found[f.of] = true
		t.Run(f.of+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			c := newFakeCloud()
			if f.cloud != nil {
				f.cloud(c)
			}
			config := configOf(c, func() provider.Driver {
				b := whole(c)
				f.with(b)
				return b
			})
			// What a flaw keeps from happening is waited for that long.
			config.Timeout = time.Second
			report := record(t, config, append(f.after, f.of)...)
			if all := strings.Join(report.failures, "\n"); !report.failed || !strings.Contains(all, f.says) {
				t.Errorf("want a failure that says %q, got:\n%s", f.says, all)
			}
		})
	}
	for _, c := range cases() {
		if !found[c.name] {
			t.Errorf("no flaw shows that the case %s can fail", c.name)
		}
	}
}

// The broken drivers break nothing but what they shall: without a flaw they pass.
func TestWithoutAFlawTheBrokenDriverPasses(t *testing.T) {
	c := newFakeCloud()
	config := configOf(c, func() provider.Driver {
		b := whole(c)
		b.settle = time.Minute
		return b
	})
	for _, tc := range cases() {
		if report := record(t, config, tc.name); report.failed || report.skipped {
			t.Errorf("%s: skipped %v, failures %v", tc.name, report.skipped, report.failures)
		}
	}
}
