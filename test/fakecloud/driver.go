package fakecloud

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

func (c *Cloud) call(name string, f func() error) error {
	return c.around(name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tick()
		return f()
	})
}

func (c *Cloud) around(name string, f func() error) error {
	if c.WrapCall == nil {
		return f()
	}
	return c.WrapCall("cloud "+name, f)
}

func (c *Cloud) count(calls *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*calls++
}

func accountOf(class provider.Class) string {
	account, _ := class.Credentials.Get("account")
	return string(account.Reveal())
}

// Name implements provider.Driver.
func (c *Cloud) Name() string { return c.ProviderName }

// CreateSettle implements provider.Settler.
func (c *Cloud) CreateSettle() time.Duration { return c.Settle }

// ListScope implements provider.Scoper.
func (c *Cloud) ListScope(class provider.Class) (string, error) {
	if c.Scope == nil {
		return "", nil
	}
	return c.Scope(class)
}

// Account implements provider.Accounter.
func (c *Cloud) Account(class provider.Class) (string, error) { return accountOf(class), nil }

// Create implements provider.Driver.
func (c *Cloud) Create(_ context.Context, req provider.CreateRequest) (out *provider.Instance, err error) {
	err = c.call("create", func() (err error) {
		c.requests = append(c.requests, req)
		step := c.step("Create")
		if step.TokenUsed {
			c.tokens[req.Token] = usedToken{}
		}
		if step.EffectDelay > 0 {
			c.creating = append(c.creating, lateCreate{c.Clock.Now().Add(step.EffectDelay), req})
		}
		if step.Err != nil {
			return step.Err
		}
		if c.Refuse != nil {
			if err := c.Refuse(req); err != nil {
				return err
			}
		}
		out, err = c.create(req, c.Clock.Now())
		return err
	})
	if err != nil {
		return nil, err // The call has failed, but the cloud may have created the instance.
	}
	return out, nil
}

func (c *Cloud) create(req provider.CreateRequest, now time.Time) (*provider.Instance, error) {
	parameters := fmt.Sprintf("%s/%s/%s", req.Class.Spec, req.UserData.Reveal(), req.Version)
	if used, known := c.tokens[req.Token]; known {
		in := c.byID(used.providerID)
		if used.parameters != parameters || in == nil {
			return nil, provider.Errorf(provider.AlreadyExists, "token %s was used for another creation", req.Token)
		}
		return in.describe(), nil
	}
	account := accountOf(req.Class)
	if in, err := c.find(&account, "", req.ClusterID, req.Machine); err == nil {
		return in, nil // The contract forbids a second instance for a machine.
	}
	for _, in := range c.instances {
		if in.MachineUID == req.Machine.UID {
			c.twins = append(c.twins, in.MachineUID)
		}
	}
	c.created[req.Machine.UID]++
	serial := len(c.history) + 1
	in := &Instance{
		Token: req.Token, UserData: string(req.UserData.Reveal()), account: account, created: now,
		Instance: provider.Instance{
			ProviderID: fmt.Sprintf("fake://%s/i-%04d", req.Machine.Namespace, serial),
			State:      provider.StateRunning, NodeName: c.NodeName(req.Machine),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", serial)}},
			Type:      "small", Region: "r", Zone: "r-1", LaunchTime: now,
			Scope: "scope-" + req.Machine.Namespace,
		},
	}
	Tag(&in.Instance, req.Tags)
	if c.Boot > 0 || c.CreateTask > 0 {
		in.State = provider.StatePending
	}
	if c.CreateTask > 0 {
		in.CreateHandle = "task-" + req.Token
	}
	c.instances = append(c.instances, in)
	c.record(now)
	c.tokens[req.Token] = usedToken{parameters, in.ProviderID}
	return in.describe(), nil
}

// Get implements provider.Driver.
func (c *Cloud) Get(_ context.Context, req provider.GetRequest) (out *provider.Instance, err error) {
	if c.OnGet != nil {
		if err := c.OnGet(req.ProviderID); err != nil {
			return nil, err
		}
	}
	err = c.call("get", func() (err error) {
		step := c.step("Get")
		if step.Err != nil {
			return step.Err
		}
		if in := c.byHandle(req.CreateHandle); in != nil {
			out = in.describe()
			return nil
		}
		account := accountOf(req.Class)
		if out, err = c.find(&account, req.ProviderID, req.ClusterID, req.Machine); err == nil {
			err = checkScope(out, req.Scope)
		}
		if err == nil && step.EditAnswer != nil {
			step.EditAnswer(out)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete implements provider.Driver. Like many drivers, Delete reads the instance before deleting it.
func (c *Cloud) Delete(_ context.Context, req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	c.count(&c.deletes)
	if c.OnDelete != nil {
		if err := c.OnDelete(req.ProviderID); err != nil {
			return out, err
		}
	}
	err = c.call("delete", func() (err error) {
		out, err = c.delete(req)
		return err
	})
	if err != nil {
		return provider.DeleteResult{}, err
	}
	return out, nil
}

func (c *Cloud) delete(req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	step := c.step("Delete")
	if step.Err != nil {
		return out, step.Err
	}
	out.Gone = true
	if step.ReportsGone {
		return out, nil
	}
	account := accountOf(req.Class)
	if req.ProviderID == "" {
		c.Leftovers[account] = slices.DeleteFunc(c.Leftovers[account], func(l provider.Leftover) bool {
			return l.ClusterID == req.ClusterID && l.MachineUID == req.Machine.UID
		})
	}
	read, err := c.find(&account, req.ProviderID, req.ClusterID, req.Machine)
	if in := c.byHandle(req.CreateHandle); in != nil {
		read, err = in.describe(), nil
	}
	if err == nil {
		err = checkScope(read, req.Scope)
	}
	if provider.IsNotFound(err) {
		return out, nil
	}
	in := c.byID(read.ProviderID)
	if in == nil {
		return out, nil // The instance was removed after the state that the read returned.
	}
	if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
		return out, err
	}
	if c.Shutdown == 0 {
		c.remove(in.ProviderID)
		out.Found = !c.Evasive
		return out, nil
	}
	if in.goneFrom.IsZero() {
		in.State, in.goneFrom = provider.StateTerminating, c.Clock.Now().Add(c.Shutdown)
		c.record(c.Clock.Now())
	}
	return provider.DeleteResult{Remaining: c.RemainingParts}, nil
}

// Adopt implements provider.Adopter. Like many drivers, Adopt reads the instance before setting the tags.
func (c *Cloud) Adopt(_ context.Context, req provider.AdoptRequest) (out *provider.Instance, err error) {
	err = c.call("adopt", func() error {
		step := c.step("Adopt")
		if step.EffectDelay > 0 {
			c.tagging = append(c.tagging, lateTags{c.Clock.Now().Add(step.EffectDelay), req})
		}
		if step.Err != nil {
			return step.Err
		}
		account := accountOf(req.Class)
		if _, err := c.find(&account, req.ProviderID, req.ClusterID, req.Machine); err != nil {
			return err
		}
		in := c.byID(req.ProviderID)
		if in == nil {
			return provider.Errorf(provider.NotFound, "no instance %s", req.ProviderID)
		}
		if !req.Replaces(&in.Instance) && (in.MachineUID != "" && in.MachineUID != req.Machine.UID ||
			in.ClusterID != "" && in.ClusterID != req.ClusterID) {
			return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to machine %s", in.ProviderID,
				in.MachineKey)
		}
		Tag(&in.Instance, req.Tags)
		c.record(c.Clock.Now())
		out = in.describe()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Update implements provider.Driver with OnUpdate. Without OnUpdate, Update returns UpdateDone.
func (c *Cloud) Update(_ context.Context, req provider.UpdateRequest) (out provider.UpdateResult, err error) {
	err = c.around("update", func() error {
		if c.OnUpdate == nil {
			out.Outcome = provider.UpdateDone
			return nil
		}
		out, err = c.OnUpdate(req)
		return err
	})
	return out, err
}

// List implements provider.Driver. List also returns the instances of other clusters in the account, although the
// driver contract forbids this.
func (c *Cloud) List(_ context.Context, req provider.ListRequest) (out provider.ListPage, err error) {
	page, account := 0, accountOf(req.Class)
	if req.Continue != "" {
		if page, err = strconv.Atoi(req.Continue); err != nil {
			return out, err
		}
	}
	if page == 0 {
		c.count(&c.lists)
	}
	if c.OnList != nil {
		if err := c.OnList(account, page); err != nil {
			return out, err
		}
	}
	err = c.call("list", func() error {
		out = c.page(account, page)
		return nil
	})
	return out, err
}

func (c *Cloud) page(account string, page int) (out provider.ListPage) {
	var all []provider.Instance
	for _, h := range c.history {
		if h.account != account {
			continue
		}
		if in := c.read(h); in != nil && in.CreateHandle == "" {
			all = append(all, *in)
		}
	}
	from, to := min(page*c.PageSize, len(all)), min((page+1)*c.PageSize, len(all))
	out.Instances = all[from:to]
	if to < len(all) {
		out.Continue = strconv.Itoa(page + 1)
	} else {
		out.Leftovers = slices.Clone(c.Leftovers[account])
	}
	return out
}
