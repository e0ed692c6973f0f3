// A client of the scheduling service in Go, on stubs that protoc generated: it submits a job, watches it, fetches its
// result and plans a dataflow.
//
//	GOFFISH_SERVER=127.0.0.1:7077 go run . INPUT RESULT.arrow
//
// GOFFISH_TOKEN is sent if it is set; GOFFISH_AUTHORITY is a file of certificates, for TLS. Without TLS the token is only
// sent to a loopback address of this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"goffish.example/client/goffishv1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: client INPUT RESULT.arrow")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(input, output string) error {
	connection, err := connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx := context.Background()
	if token := os.Getenv("GOFFISH_TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	jobs := goffishv1.NewJobServiceClient(connection)
	id, err := submit(ctx, jobs, input)
	if err != nil {
		return err
	}
	if err := watch(ctx, jobs, id); err != nil {
		return err
	}
	if err := fetch(ctx, jobs, id, output); err != nil {
		return err
	}
	return plan(ctx, goffishv1.NewPlanningServiceClient(connection))
}

func connect() (*grpc.ClientConn, error) {
	address := os.Getenv("GOFFISH_SERVER")
	if address == "" {
		address = "127.0.0.1:7077"
	}
	trusted := insecure.NewCredentials()
	if authority := os.Getenv("GOFFISH_AUTHORITY"); authority != "" {
		var err error
		if trusted, err = credentials.NewClientTLSFromFile(authority, ""); err != nil {
			return nil, err
		}
	} else if os.Getenv("GOFFISH_TOKEN") != "" && !isLoopback(address) {
		return nil, fmt.Errorf("%s: the token would be sent unencrypted; set GOFFISH_AUTHORITY, or use 127.0.0.1", address)
	}
	return grpc.NewClient(address, grpc.WithTransportCredentials(trusted))
}

// Names are not looked up: what they resolve to can change.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// The key names the job: sent twice, because an answer was lost on its way, it is still one job.
func submit(ctx context.Context, jobs goffishv1.JobServiceClient, input string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := jobs.Submit(ctx, &goffishv1.SubmitRequest{
		ClientKey: "go-" + input,
		Spec: &goffishv1.JobSpec{
			Work: &goffishv1.JobSpec_Graph{Graph: &goffishv1.GraphJob{Algorithm: "components", InputUri: input}},
		},
	}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	fmt.Printf("job %s, known before: %t\n", answer.GetJob().GetId(), answer.GetKnown())
	return answer.GetJob().GetId(), nil
}

// Goes on after the last event that came when the server was away.
func watch(ctx context.Context, jobs goffishv1.JobServiceClient, id string) error {
	var last *goffishv1.Event
	for {
		stream, err := jobs.Watch(ctx, &goffishv1.WatchRequest{Id: id, After: last.GetNumber()})
		for err == nil {
			var answer *goffishv1.WatchResponse
			if answer, err = stream.Recv(); err == nil {
				last = answer.GetEvent()
				state := strings.TrimPrefix(last.GetState().String(), "JOB_STATE_")
				fmt.Printf("%3d  %-10s %-12s %s\n", last.GetNumber(), last.GetKind(), state, last.GetText())
			}
		}
		switch {
		case errors.Is(err, io.EOF) && last.GetState() != goffishv1.JobState_JOB_STATE_DONE:
			return fmt.Errorf("job %s: %s", id, last.GetText())
		case errors.Is(err, io.EOF):
			return nil
		case status.Code(err) != codes.Unavailable:
			return err
		}
		time.Sleep(time.Second)
	}
}

// The pieces in their order are an Arrow IPC stream.
func fetch(ctx context.Context, jobs goffishv1.JobServiceClient, id, output string) error {
	stream, err := jobs.FetchResult(ctx, &goffishv1.FetchResultRequest{Id: id})
	if err != nil {
		return err
	}
	file, err := os.Create(output)
	if err != nil {
		return err
	}
	defer file.Close()
	var total int
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Printf("%d bytes in %s\n", total, output)
			return file.Sync()
		}
		if err != nil {
			return err
		}
		written, err := file.Write(piece.GetData())
		if err != nil {
			return err
		}
		total += written
	}
}

func plan(ctx context.Context, planning goffishv1.PlanningServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := planning.Plan(ctx, &goffishv1.PlanRequest{Setting: &goffishv1.Setting{
		Dataflow: &goffishv1.Setting_DataflowName{DataflowName: "linear-road"},
	}})
	if err != nil {
		return err
	}
	made := answer.GetPlan()
	fmt.Printf("linear-road: %d machines, %.2f %s an hour, relative throughput %.2f\n",
		len(made.GetMachines()), made.GetCostPerHour(), made.GetCurrency(), made.GetThroughput())
	return nil
}
