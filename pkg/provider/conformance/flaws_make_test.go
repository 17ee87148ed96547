package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
)

func classAndCreateFlaws() []flaw {
	return []flaw{
		{caseName: "NameAndTimes", name: "a name that is not a DNS label", rule: "is not a DNS label", with: func(b *broken) {
			b.name = "My_Cloud"
		}},
		{caseName: "NameAndTimes", name: "CreateSettle is zero", rule: "CreateSettle 0s is not positive", with: func(b *broken) {
			b.settle = 0
		}},
		{caseName: "ValidateAcceptsWhatWorks", name: "asks the cloud", rule: "with rejected credentials",
			with: validatesAtTheCloud},
		{caseName: "InvalidSpecsAreRefusedByField", name: "does not name the field", rule: `about field "", want "size"`,
			with: func(b *broken) {
				decode := b.decode
				b.decode = func(raw []byte) (machineSpec, error) {
					spec, err := decode(raw)
					if e, ok := errors.AsType[*provider.Error](err); ok {
						e.Field = ""
					}
					return spec, err
				}
			}},
		{caseName: "InvalidSpecsAreRefusedByField", name: "only Validate checks", rule: "Create of an invalid providerSpec",
			with: func(b *broken) {
				validating := *b.correct
				b.validate = validating.Validate
				b.decode = func([]byte) (machineSpec, error) { return machineSpec{Size: "small"}, nil }
			}},
		{caseName: "SpecIsDecodedStrictly", name: "ignores unknown fields", rule: "(an unknown field)", with: func(b *broken) {
			b.decode = decodeLeniently
		}},
		{caseName: "CredentialsAreDecodedStrictly", name: "Validate does not check them",
			rule: "Validate with MalformedCredentials[0]", with: func(b *broken) {
				b.validate = func(ctx context.Context, req provider.ValidateRequest) error {
					req.Class.Credentials = provider.Credentials{}
					return b.correct.Validate(ctx, req)
				}
			}},
		{caseName: "CredentialsNameNoSources", name: "reads files", rule: "it follows the reference",
			with: follows(func(value string) (string, bool) {
				path, isFile := strings.CutPrefix(value, "file://")
				content, err := os.ReadFile(path)
				return string(content), isFile && err == nil
			})},
		{caseName: "CredentialsNameNoSources", name: "fetches URLs", rule: "fetched a URL",
			with: follows(func(value string) (string, bool) {
				resp, err := http.Get(value)
				if err != nil {
					return "", false
				}
				defer resp.Body.Close()
				content, err := io.ReadAll(resp.Body)
				return string(content), err == nil
			})},
		{caseName: "CredentialsNameNoSources", name: "runs commands", rule: "ran a command",
			with: follows(func(value string) (string, bool) {
				command, isCommand := strings.CutPrefix(value, "|")
				out, err := exec.Command("sh", "-c", command).Output()
				return string(out), isCommand && err == nil
			})},
		{caseName: "CredentialsNameNoSources", name: "reads a file named by another key",
			rule: "instead of token", with: func(b *broken) {
				b.tokenOf = func(c provider.Credentials) (string, error) {
					if path, found := c.Get("tokenFile"); found {
						content, err := os.ReadFile(string(path.Reveal()))
						return string(content), err
					}
					return tokenOf(c)
				}
			}},
		{caseName: "RejectedCredentials", name: "reports NotFound", rule: "Get by tags with RejectedCredentials",
			with: func(b *broken) {
				code(b, provider.Unauthenticated, provider.NotFound)
			}},
		{caseName: "CapacityIsPlausible", name: "a negative quantity", rule: `resource "cpu" is -2`, with: func(b *broken) {
			b.capacity = func(context.Context, provider.CapacityRequest) (provider.Capacity, error) {
				return provider.Capacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("-2")}}, nil
			}
		}},

		{caseName: "CreateMakesAnInstance", name: "never runs", rule: "it is in state Pending",
			with: converting(func(in *provider.Instance) { in.State = provider.StatePending })},
		{caseName: "CreateMakesAnInstance", name: "an invented state", rule: `State "Booting" does not exist`,
			with: converting(func(in *provider.Instance) { in.State = "Booting" })},
		{caseName: "CreateMakesAnInstance", name: "a provider ID that is not a URL", rule: "is not a URL",
			with: converting(func(in *provider.Instance) { in.ProviderID = "i-1" })},
		{caseName: "CreateMakesAnInstance", name: "an invalid node name", rule: "is not a DNS subdomain",
			with: converting(func(in *provider.Instance) { in.NodeName = "Worker_1" })},
		{caseName: "CreateMakesAnInstance", name: "an empty address", rule: "without type or value",
			with: converting(func(in *provider.Instance) { in.Addresses = make([]corev1.NodeAddress, 1) })},
		{caseName: "CreateMakesAnInstance", name: "a long type", rule: "Type is 300 bytes long",
			with: converting(func(in *provider.Instance) { in.Type = strings.Repeat("x", 300) })},
		{caseName: "CreateMakesAnInstance", name: "neither instance nor error", rule: "returns neither", with: func(b *broken) {
			b.get = func(context.Context, provider.GetRequest) (*provider.Instance, error) { return nil, nil }
		}},
		{caseName: "CreateMakesAnInstance", name: "panics", rule: "Create panicked: a bug", with: func(b *broken) {
			b.create = func(context.Context, provider.CreateRequest) (*provider.Instance, error) { panic("a bug") }
		}},
		{caseName: "CreateMakesAnInstance", name: "an invented code", rule: `the code "Busy", which does not exist`,
			with: func(b *broken) {
				b.create = func(context.Context, provider.CreateRequest) (*provider.Instance, error) {
					return nil, provider.Errorf("Busy", "come back later")
				}
			}},
		{caseName: "CreateTwiceIsOne", name: "always creates an instance",
			rule: "Create again at once returns", with: withoutIdempotency},
		{caseName: "CreateAtOnceIsOne", name: "reads and then creates", rule: "concurrent Creates with the same token return",
			with: func(b *broken) {
				met := meeting()
				b.idempotency = func(provider.CreateRequest) string { met(); return random(8) }
			}},
		{caseName: "CreateAtOnceIsOne", name: "fails permanently", rule: "want an error with code Aborted",
			with: func(b *broken) {
				var busy sync.Mutex
				both := meeting()
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					if !busy.TryLock() {
						both()
						return nil, provider.Errorf(provider.InvalidArgument, "another call is in progress")
					}
					defer busy.Unlock()
					both()
					return b.correct.Create(ctx, req)
				}
			}},
		{caseName: "CreateAfterRestartIsOne", name: "remembers tokens only in the process", rule: "after a restart returns",
			with: func(b *broken) {
				process := random(8)
				b.checksFirst = false
				b.idempotency = func(req provider.CreateRequest) string { return process + req.Token }
			}},
		{caseName: "CreateWithOtherParameters", name: "creates an instance for other parameters",
			rule: "with the token of an earlier Create and changed",
			with: func(b *broken) {
				b.checksFirst = false
				b.idempotency = func(req provider.CreateRequest) string {
					return fmt.Sprintf("%s %s %s", req.Token, req.Class.Spec, req.UserData.Reveal())
				}
			}},
		{caseName: "CreateWithOtherParameters", name: "returns InvalidArgument", rule: "want an error with code AlreadyExists",
			with: func(b *broken) {
				b.checksFirst = false
				code(b, provider.AlreadyExists, provider.InvalidArgument)
			}},
		{caseName: "LaterAttemptTakesOver", name: "searches only by token", rule: "of a second attempt returns",
			with: func(b *broken) { b.checksFirst = false }},
		{caseName: "SpentToken", name: "returns the deleted instance",
			rule: "returns one in state Terminating", with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					in, err := b.correct.Create(ctx, req)
					if provider.CodeOf(err) == provider.AlreadyExists {
						return b.describe(server{id: "i-1", tags: req.Tags, deletions: 1}), nil
					}
					return in, err
				}
			}},
	}
}

func findFlaws() []flaw {
	return []flaw{
		{caseName: "TagsAreThere", name: "omits the name", rule: `MachineKey ""`, with: func(b *broken) {
			b.tags = func(req provider.CreateRequest) map[string]string { return ownerTags(req.ClusterID, req.Machine) }
		}},
		{caseName: "TagsAreThere", name: "List omits the cluster",
			rule: `List: the instance has ClusterID ""`, with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					for i := range page.Instances {
						page.Instances[i].ClusterID = ""
					}
					return page, err
				}
			}},
		{caseName: "ProviderIDs", name: "all end in the same segment", rule: "end in the same segment",
			with: converting(func(in *provider.Instance) { in.ProviderID += "/server" })},
		{caseName: "ProviderIDs", name: "the ID changes", rule: `the provider ID of the running instance is`,
			with: converting(func(in *provider.Instance) {
				if in.State == provider.StateRunning {
					in.ProviderID += "/running"
				}
			})},
		{caseName: "ScopeIsEnough", name: "needs the class", rule: "without Class.Spec", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				if _, err := b.decode(req.Class.Spec); err != nil {
					return nil, err
				}
				return b.correct.Get(ctx, req)
			}
		}},
		{caseName: "ScopeIsEnough", name: "a long scope", rule: "Scope is 2000 bytes long",
			with: converting(func(in *provider.Instance) { in.Scope = strings.Repeat("x", 2000) })},
		{caseName: "GetAndListAgree", name: "List omits the scope", rule: "Get and List disagree", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				for i := range page.Instances {
					page.Instances[i].Scope = ""
				}
				return page, err
			}
		}},
		{caseName: "NotFound", name: "an error without a code", rule: "want an error with code NotFound", with: func(b *broken) {
			b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
				in, err := b.correct.Get(ctx, req)
				if provider.IsNotFound(err) {
					return nil, errors.New("no such server")
				}
				return in, err
			}
		}},
		{caseName: "NotFound", name: "finds instances of any cluster",
			rule: "Get by tags of another cluster", with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					req.ClusterID = strings.TrimSuffix(req.ClusterID, "-other")
					return b.correct.Get(ctx, req)
				}
			}},
		{caseName: "ListGoesThroughAllPages", name: "returns only the first page", rule: "List does not", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				page.Continue = ""
				return page, err
			}
		}},
		{caseName: "ListGoesThroughAllPages", name: "pages overlap", rule: "2 times", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				if req.Continue == "2" {
					first, _ := b.correct.List(ctx, provider.ListRequest{Class: req.Class, ClusterID: req.ClusterID})
					page.Instances = append(page.Instances, first.Instances...)
				}
				return page, err
			}
		}},
		{caseName: "ListGoesThroughAllPages", name: "never ends", rule: "it never ends", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				if page.Continue == "" && req.Continue != "" {
					page.Continue = req.Continue
				}
				return page, err
			}
		}},
		{caseName: "ListIsOfOneCluster", name: "lists all clusters",
			rule: "which belongs to another cluster", with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
					all, _, err := b.cloud.listServers(ctx, b.cloud.account, nil, 0, 100)
					for _, s := range all {
						page.Instances = append(page.Instances, *b.convert(s))
					}
					return page, err
				}
			}},
	}
}
