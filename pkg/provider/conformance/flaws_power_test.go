package conformance

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
)

// switching breaks SetPower: the function changes the answer of a correct SetPower.
func switching(change func(*broken, provider.PowerRequest, *provider.Instance, error) (*provider.Instance,
	error)) func(*broken) {
	return func(b *broken) {
		b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
			in, err := b.correct.SetPower(ctx, req)
			return change(b, req, in, err)
		}
	}
}

// reports breaks SetPower: it reports the requested state at once if the request matches.
func reports(matches func(req provider.PowerRequest) bool) func(*broken) {
	return switching(func(_ *broken, req provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
		error) {
		if err == nil && matches(req) {
			in.State = provider.StateStopped
		}
		return in, err
	})
}

func powerFlaws() []flaw {
	isOff := func(req provider.PowerRequest) bool { return req.Action != provider.PowerOn }
	return []flaw{
		{caseName: "PowerOffAndOn", name: "reports Stopped as soon as the request is accepted",
			rule: "the instance is on: true", with: reports(isOff)},
		{caseName: "PowerOffAndOn", name: "creates another instance", rule: `SetPower with On returns "fake`,
			with: recreates},
		{caseName: "PowerOffAndOn", name: "loses the tags", rule: "SetPower with On: the instance has ClusterID",
			with: losesTags},
		{caseName: "PowerOffAndOn", name: "deletes the disk", rule: "SetPower with Off changes the resources",
			with: switching(func(b *broken, req provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
				error) {
				if id, _ := idOf(req.ProviderID); isOff(req) {
					b.cloud.mu.Lock()
					defer b.cloud.mu.Unlock()
					delete(b.cloud.parts, "disk/"+id)
				}
				return in, err
			})},
		{caseName: "PowerOffAndOn", name: "Get does not show the state", rule: "shows Running",
			with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, req)
					if err == nil && in.State == provider.StateStopped {
						in.State = provider.StateRunning
					}
					return in, err
				}
			}},
		{caseName: "PowerOffAndOn", name: "waits for a state that never comes", rule: "it returns Running",
			with: func(b *broken) {
				b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
					return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				}
			}},
		{caseName: "PowerOffIgnored", name: "reports an ignored request as done", rule: "the instance is on: true",
			with: reports(func(req provider.PowerRequest) bool { return req.Action == provider.PowerOff })},
		{caseName: "PowerOffIgnored", name: "sends PowerOff for PowerForceOff",
			rule: "repeated SetPower calls with ForceOff",
			with: func(b *broken) {
				b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
					if req.Action == provider.PowerForceOff {
						req.Action = provider.PowerOff
					}
					return b.correct.SetPower(ctx, req)
				}
			}},
		{caseName: "PowerOffIgnored", name: "forces PowerOff", rule: "the operating system ignores PowerOff, but",
			with: func(b *broken) {
				b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
					if req.Action == provider.PowerOff {
						req.Action = provider.PowerForceOff
					}
					return b.correct.SetPower(ctx, req)
				}
			}},
		{caseName: "PowerStateGoesBack", name: "trusts a read", rule: "the instance is on: true", with: trustsRead},
		{caseName: "PowerCut", name: "reports Stopped after an error", rule: "the instance is on: true",
			with: ignoresError},
		{caseName: "PowerCut", name: "a terminal error",
			rule: "want the instance or an error after which Machinist retries",
			with: switching(func(_ *broken, _ provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
				error) {
				if err != nil {
					err = provider.Errorf(provider.FailedPrecondition, "it failed")
				}
				return in, err
			})},
		{caseName: "PowerDoneLate", name: "reports that the request had no effect", rule: "may have taken effect",
			with: func(b *broken) { code(b, provider.Unavailable, provider.Throttled) }},
		{caseName: "PowerRefusesOthers", name: "ignores the tags", rule: "want an error with code FailedPrecondition",
			with: func(b *broken) {
				b.requiredTags = func(string, provider.Machine) map[string]string { return nil }
			}},
		{caseName: "PowerRefusesOthers", name: "a deleted instance is Stopped", rule: "want an error with code NotFound",
			with: switching(func(b *broken, req provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
				error) {
				if provider.IsNotFound(err) {
					in, err = b.describe(server{id: req.ProviderID[len("fake://zone-1/"):], off: true}), nil
				}
				return in, err
			})},
		{caseName: "PowerWhileDeleting", name: "reports Running", rule: "returns Running, want Terminating",
			with: switching(func(_ *broken, _ provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
				error) {
				if err == nil && in.State == provider.StateTerminating {
					in.State = provider.StateRunning
				}
				return in, err
			})},
		{caseName: "DeleteWhileStopped", name: "keeps the interface of an instance that is off", rule: "leaves [nic/",
			with: forgetsNICs},
		{caseName: "CreateWhileStopped", name: "creates another instance", rule: "for an instance that is off returns",
			with: func(b *broken) {
				withoutIdempotency(b)
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					found, err := b.correct.Get(ctx, provider.GetRequest{Machine: req.Machine, Class: req.Class,
						ClusterID: req.ClusterID})
					if err == nil && found.State != provider.StateStopped {
						return found, nil
					}
					return b.correct.Create(ctx, req)
				}
			}},
		{caseName: "CreateWhileStopped", name: "switches the instance on", rule: "must not switch the instance on",
			with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					in, err := b.correct.Create(ctx, req)
					if err == nil && in.State == provider.StateStopped {
						b.switchOn(ctx, in)
					}
					return in, err
				}
			}},
		{caseName: "UpdateWhileStopped", name: "reports Running", rule: "it answers Done with the state Running",
			with: func(b *broken) {
				b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
					result, err := b.correct.Update(ctx, req)
					if result.Instance != nil {
						result.Instance.State = provider.StateRunning
					}
					return result, err
				}
			}},
		{caseName: "UpdateWhileStopped", name: "switches the instance on", rule: "Update must not switch the instance on",
			with: func(b *broken) {
				b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
					result, err := b.correct.Update(ctx, req)
					if err == nil && result.Outcome == provider.UpdateInProgress {
						b.switchOn(ctx, result.Instance)
					}
					return result, err
				}
			}},
		{caseName: "NoCapacityToStart", name: "waits for capacity without an error", rule: "want ResourceExhausted",
			with: switching(func(b *broken, req provider.PowerRequest, in *provider.Instance, err error) (*provider.Instance,
				error) {
				if provider.CodeOf(err) == provider.ResourceExhausted {
					return b.correct.Get(context.Background(), provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				}
				return in, err
			})},
	}
}

// switchOn switches an instance on at once.
func (b *broken) switchOn(_ context.Context, in *provider.Instance) {
	b.cloud.mu.Lock()
	defer b.cloud.mu.Unlock()
	if id, _ := idOf(in.ProviderID); b.cloud.find(id) != nil {
		b.cloud.find(id).off = false
	}
}

// recreates makes SetPower replace an instance that it switches on.
func recreates(b *broken) {
	b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
		in, err := b.correct.SetPower(ctx, req)
		if err == nil && req.Action == provider.PowerOn {
			id, _ := idOf(req.ProviderID)
			b.cloud.mu.Lock()
			former := *b.cloud.find(id)
			b.cloud.remove(id)
			b.cloud.mu.Unlock()
			again, err := b.cloud.createServer(ctx, b.cloud.account, wanted{idempotency: random(8), size: former.size,
				node: former.node, nic: former.nic, tags: former.tags})
			if err != nil {
				return nil, b.translate(err)
			}
			return b.convert(again), nil
		}
		return in, err
	}
}

// losesTags makes SetPower remove the tags of an instance that it switches on.
func losesTags(b *broken) {
	b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
		in, err := b.correct.SetPower(ctx, req)
		if err == nil && req.Action == provider.PowerOn {
			id, _ := idOf(req.ProviderID)
			b.cloud.mu.Lock()
			defer b.cloud.mu.Unlock()
			b.cloud.find(id).tags = nil
			return b.convert(*b.cloud.find(id)), nil
		}
		return in, err
	}
}

// trustsRead makes SetPower send no request if a read already shows the requested state.
func trustsRead(b *broken) {
	b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
		in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
		if err == nil && in.State == provider.StateStopped && req.Action != provider.PowerOn {
			return in, nil
		}
		return b.correct.SetPower(ctx, req)
	}
}

// ignoresError makes SetPower read the instance first, and report the requested state if the request fails.
func ignoresError(b *broken) {
	b.power = func(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
		in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
		if err != nil {
			return nil, err
		}
		if out, err := b.correct.SetPower(ctx, req); err == nil {
			return out, nil
		}
		in.State = provider.StateStopped
		return in, nil
	}
}
