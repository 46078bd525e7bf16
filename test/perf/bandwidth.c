/* Bandwidth between pairs of ranks, rank i of the first half with rank i + n/2, all pairs at once: windows of messages, each answered by an
 * empty one. Prints the sum over the pairs in MB/s, the median of several rounds (`bandwidth 3`: of 3), one number a message size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 9
#define WINDOW 32
#define LARGEST (1 << 20)

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* One round; seconds. */
static double exchange(char *buffer, int size, int windows, int sends, int peer)
{
	MPI_Request requests[WINDOW];
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int w = 0; w < windows; w++) {
		for (int i = 0; i < WINDOW; i++)
			if (sends)
				MPI_Isend(buffer, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
			else
				MPI_Irecv(buffer, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		if (sends)
			MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	return MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 8, 4096, 65536, LARGEST }, windows[] = { 200, 100, 20, 2 };
	char *buffer = malloc(LARGEST);
	int rank, ranks, rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks % 2 || !buffer || rounds < 1 || rounds > ROUNDS)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int s = 0; s < 4; s++) {
		double seconds[ROUNDS], bytes = (double)sizes[s] * WINDOW * windows[s] * (ranks / 2);

		exchange(buffer, sizes[s], 1, rank < ranks / 2, (rank + ranks / 2) % ranks);
		for (int r = 0; r < rounds; r++)
			seconds[r] = exchange(buffer, sizes[s], windows[s], rank < ranks / 2, (rank + ranks / 2) % ranks);
		qsort(seconds, (size_t)rounds, sizeof(seconds[0]), compare);
		if (rank == 0)
			printf("%.2f%c", bytes / seconds[rounds / 2] / 1e6, s == 3 ? '\n' : ' ');
	}
	MPI_Finalize();
	free(buffer);
	return 0;
}
