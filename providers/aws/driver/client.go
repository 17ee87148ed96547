package driver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"machinist.dev/machinist/pkg/provider"
)

// clients are the clients of one set of credentials in one region.
type clients struct {
	region string
	ec2    *ec2.Client
	sqs    *sqs.Client
	facts  facts
	// forget drops the clients, with their temporary credentials.
	forget func()
}

// facts caches what never changes: AMIs and instance types by name.
type facts struct {
	mu     sync.Mutex
	images map[string]types.Image
	kinds  map[string]types.InstanceTypeInfo
}

// maxFacts limits the cache.
const maxFacts = 256

// clients returns cached clients for the credentials and the region.
func (d *Driver) clients(c provider.Credentials, region string) (*clients, error) {
	a, err := parseCredentials(c)
	if err != nil {
		return nil, err
	}
	// Namespaces with the same credentials share clients, so each call must check whether its namespace may use them.
	if err := d.options.checkGrant(a, c.Namespace()); err != nil {
		return nil, err
	}
	return d.pool.Get(c, region, func() (*clients, error) {
		return d.newClients(a, region, func() { d.pool.Forget(c, region) }), nil
	})
}

func (d *Driver) newClients(a account, region string, forget func()) *clients {
	config := aws.Config{Region: region, HTTPClient: d.http, Retryer: newRetryer, AppID: "machinist"}
	if d.options.Endpoint != "" {
		config.BaseEndpoint = aws.String(d.options.Endpoint)
	}
	config.Credentials = a.provider(d.options, config)
	return &clients{region: region, forget: forget, ec2: ec2.NewFromConfig(config), sqs: sqs.NewFromConfig(config),
		facts: facts{images: map[string]types.Image{}, kinds: map[string]types.InstanceTypeInfo{}}}
}

// newRetryer returns a retryer that repeats a request twice: after short interruptions, and with the clock of AWS if
// the local clock is wrong. Machinist itself retries after all other errors, with a backoff that it reports.
// Throttled requests are never repeated within the call.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.RateLimiter = 3, ratelimit.None
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 20 * time.Millisecond, nil })
		o.Retryables = []retry.IsErrorRetryable{
			retry.NoRetryCanceledError{}, retry.RetryableError{}, retry.RetryableConnectionError{},
			retry.RetryableErrorCode{Codes: map[string]struct{}{"RequestExpired": {}}},
			retry.IsErrorRetryableFunc(isRefusal),
			retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusBadGateway: {},
				http.StatusInternalServerError: {},
				http.StatusServiceUnavailable:  {}, http.StatusGatewayTimeout: {}}},
		}
	})
}

// isRefusal says that an error must not be retried if AWS has a known reason for it. Some refusals have the HTTP
// status 500 or 503.
func isRefusal(err error) aws.Ternary {
	if r, known := rules()[codeOf(err)]; known && r.code != provider.Unavailable {
		return aws.FalseTernary
	}
	return aws.UnknownTernary
}

// send sends one request, and translates its error. If AWS does not accept the credentials, the next call of the
// driver gets new clients, because temporary credentials can end before their time.
func send[In, Out, Option any](ctx context.Context, c *clients, attempted string,
	call func(context.Context, In, ...Option) (Out, error), in In) (Out, error) {
	var none Out
	if err := ctx.Err(); err != nil {
		return none, translate(ctx, err, attempted)
	}
	out, err := call(ctx, in)
	if err != nil {
		err = translate(ctx, err, attempted)
		if provider.CodeOf(err) == provider.Unauthenticated {
			c.forget()
		}
		return none, err
	}
	return out, nil
}
