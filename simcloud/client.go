package simcloud

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Client is a client of the customer API. It is safe for concurrent use. Calls return an *Error for an error of the
// cloud, and a *ConnectionError if there was no usable answer.
type Client struct{ t *transport }

// New returns a client without connecting to the cloud.
func New(cfg Config) (*Client, error) {
	t, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{t: t}, nil
}

// CreateInstance requests an instance and returns it immediately, usually in the state pending.
func (c *Client) CreateInstance(ctx context.Context, req CreateInstanceRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationCreateInstance, method: http.MethodPost,
		path: []string{"instances"}, body: req, result: &out,
	}))
}

// GetInstance returns an instance. A terminated instance stays readable for some time; after that, the code is
// CodeNotFound.
func (c *Client) GetInstance(ctx context.Context, id string) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationGetInstance, method: http.MethodGet,
		path: []string{"instances", id}, result: &out,
	}))
}

// ListInstances returns one page of instances.
func (c *Client) ListInstances(ctx context.Context, opts ListInstancesOptions) (*InstanceList, error) {
	var out InstanceList
	return result(&out, c.do(ctx, call{
		operation: OperationListInstances, method: http.MethodGet,
		path: []string{"instances"}, query: opts.query(), result: &out,
	}))
}

// Instances iterates over the instances of all pages, with one call per page. Instances stops at the first error.
func (c *Client) Instances(ctx context.Context, opts ListInstancesOptions) iter.Seq2[*Instance, error] {
	return func(yield func(*Instance, error) bool) {
		for {
			page, err := c.ListInstances(ctx, opts)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Instances {
				if !yield(&page.Instances[i], nil) {
					return
				}
			}
			if opts.NextToken = page.NextToken; opts.NextToken == "" {
				return
			}
		}
	}
}

// DeleteInstance requests the deletion of an instance. It returns immediately, usually with the instance in the state
// shutting-down. Repeated calls succeed while the instance is readable. After that, the code is CodeNotFound.
func (c *Client) DeleteInstance(ctx context.Context, id string) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationDeleteInstance, method: http.MethodDelete,
		path: []string{"instances", id}, result: &out,
	}))
}

// UpdateInstance changes the type, image or kubelet version in place. The code is CodeConflict unless the instance is
// running or stopped.
func (c *Client) UpdateInstance(ctx context.Context, id string, req UpdateInstanceRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationUpdateInstance, method: http.MethodPatch,
		path: []string{"instances", id}, body: req, result: &out,
	}))
}

// StopInstance requests to switch an instance off. It returns immediately, usually with the instance in the state
// stopping. The operating system of the instance may ignore a request without Force. The instance then returns to
// the state running. Repeated calls change nothing. The code is CodeConflict if the instance is being deleted or
// never booted, or if it boots or restarts and the request has no Force.
func (c *Client) StopInstance(ctx context.Context, id string, req StopInstanceRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationStopInstance, method: http.MethodPost,
		path: []string{"instances", id, "stop"}, body: req, result: &out,
	}))
}

// StartInstance requests to switch a stopped instance on. It returns immediately, usually with the instance in the
// state starting. For an instance that is on or boots, the call changes nothing. The code is CodeConflict while the
// instance is being switched off or deleted.
func (c *Client) StartInstance(ctx context.Context, id string) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationStartInstance, method: http.MethodPost,
		path: []string{"instances", id, "start"}, result: &out,
	}))
}

// UpdateTags merges and removes tags. The code is CodeConflict if the instance is terminated or the condition of the
// request is not met.
func (c *Client) UpdateTags(ctx context.Context, id string, req UpdateTagsRequest) (*Instance, error) {
	var out Instance
	return result(&out, c.do(ctx, call{
		operation: OperationUpdateTags, method: http.MethodPut,
		path: []string{"instances", id, "tags"}, body: req, result: &out,
	}))
}

// ListAddresses returns one page of the account's addresses. The options Name and States are ignored.
func (c *Client) ListAddresses(ctx context.Context, opts ListInstancesOptions) (*AddressList, error) {
	opts.Name, opts.States = "", nil
	var out AddressList
	return result(&out, c.do(ctx, call{
		operation: OperationListAddresses, method: http.MethodGet,
		path: []string{"addresses"}, query: opts.query(), result: &out,
	}))
}

// DeleteAddress deletes the address of a terminated instance. If the address is in use, the code is CodeConflict. If
// the address does not exist, the code is CodeNotFound.
func (c *Client) DeleteAddress(ctx context.Context, id string) error {
	return c.do(ctx, call{
		operation: OperationDeleteAddress, method: http.MethodDelete,
		path: []string{"addresses", id},
	})
}

// ConsoleOutput returns the end of the output on the serial console of the machine.
func (c *Client) ConsoleOutput(ctx context.Context, id string) (string, error) {
	var out Console
	err := c.do(ctx, call{
		operation: OperationConsoleOutput, method: http.MethodGet,
		path: []string{"instances", id, "console"}, result: &out,
	})
	return out.Output, err
}

// ListRegions returns the regions that the account may use.
func (c *Client) ListRegions(ctx context.Context) ([]Region, error) {
	var out RegionList
	err := c.do(ctx, call{
		operation: OperationListRegions, method: http.MethodGet,
		path: []string{"regions"}, result: &out,
	})
	return out.Regions, err
}

// ListInstanceTypes returns the instance types.
func (c *Client) ListInstanceTypes(ctx context.Context) ([]InstanceType, error) {
	var out InstanceTypeList
	err := c.do(ctx, call{
		operation: OperationListInstanceTypes, method: http.MethodGet,
		path: []string{"instance-types"}, result: &out,
	})
	return out.InstanceTypes, err
}

// ListImages returns the images.
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	var out ImageList
	err := c.do(ctx, call{
		operation: OperationListImages, method: http.MethodGet,
		path: []string{"images"}, result: &out,
	})
	return out.Images, err
}

// These are the names of operations in faults, statistics and connection errors.
const (
	OperationCreateInstance    = "CreateInstance"
	OperationGetInstance       = "GetInstance"
	OperationListInstances     = "ListInstances"
	OperationDeleteInstance    = "DeleteInstance"
	OperationUpdateInstance    = "UpdateInstance"
	OperationUpdateTags        = "UpdateTags"
	OperationStopInstance      = "StopInstance"
	OperationStartInstance     = "StartInstance"
	OperationListAddresses     = "ListAddresses"
	OperationDeleteAddress     = "DeleteAddress"
	OperationConsoleOutput     = "ConsoleOutput"
	OperationListRegions       = "ListRegions"
	OperationListInstanceTypes = "ListInstanceTypes"
	OperationListImages        = "ListImages"
)

// ChangesOnly selects all operations that change something, in FaultRule.Operation.
const ChangesOnly = "changes"

// ChangeOperations returns the names of the operations that create, change or delete something.
func ChangeOperations() []string {
	return []string{OperationCreateInstance, OperationDeleteInstance, OperationUpdateInstance, OperationUpdateTags,
		OperationStopInstance, OperationStartInstance, OperationDeleteAddress}
}

// Operations returns the names of all operations that faults can affect and statistics count.
func Operations() []string {
	return []string{
		OperationCreateInstance, OperationGetInstance, OperationListInstances, OperationDeleteInstance,
		OperationUpdateInstance, OperationUpdateTags, OperationStopInstance, OperationStartInstance,
		OperationListAddresses, OperationDeleteAddress, OperationConsoleOutput,
		OperationListRegions, OperationListInstanceTypes, OperationListImages,
	}
}

// Console is the result of ConsoleOutput.
type Console struct {
	Output string `json:"output"`
}

// RegionList is the result of ListRegions.
type RegionList struct {
	Regions []Region `json:"regions"`
}

// InstanceTypeList is the result of ListInstanceTypes.
type InstanceTypeList struct {
	InstanceTypes []InstanceType `json:"instanceTypes"`
}

// ImageList is the result of ListImages.
type ImageList struct {
	Images []Image `json:"images"`
}

// query encodes a tag as "key=value", or as "key" for any value.
func (o ListInstancesOptions) query() url.Values {
	q := url.Values{}
	for key, value := range o.Tags {
		q.Add("tag", key+"="+value)
	}
	for _, key := range o.HasTags {
		q.Add("tag", key)
	}
	for _, state := range o.States {
		q.Add("state", string(state))
	}
	for key, value := range map[string]string{
		"name": o.Name, "region": o.Region, "zone": o.Zone, "nextToken": o.NextToken,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

func (c *Client) do(ctx context.Context, call call) error {
	return c.t.do(ctx, "v1", call)
}

func result[T any](out *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}
